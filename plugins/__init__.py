"""One folder per operation that targets implement natively: its contract, its reference, its kernels.

Nothing here imports anything of Forerun.
"""
