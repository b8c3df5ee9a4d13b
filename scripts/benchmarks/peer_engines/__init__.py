"""Other engines, timed like ours: one small module per engine, run in a virtual environment and a process of its own.

`catalogue` lists the engines, `installing` makes their environments, `*_model` modules convert the checkpoint,
`measuring` is what every worker process does, `comparison` and `chart` show what came of it.
"""
