"""What a sampler asks of rows of logits."""
