"""Write what an artifact holds back as a Hugging Face folder, without the checkpoint that it was made of."""
