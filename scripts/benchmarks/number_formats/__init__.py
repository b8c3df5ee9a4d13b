"""What number formats cost and lose: each made once, and read beside modelopt's own model and llama.cpp's formats."""
