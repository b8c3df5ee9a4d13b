"""The quality gate as commands run it. Of builder, the command line alone turns text into tokens."""
