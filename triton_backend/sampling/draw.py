"""The draw: inverse of the cumulative weight at a random number. Always the last step."""

from triton_backend.sampling.kept import Bool, Float64, Int64, Kept


def draw(kept: Kept, uniforms: Float64) -> tuple[Int64, Bool]:
    """Give the rank `[R]` of the token drawn in each row, and whether the tokens at hand decide it.

    The mass of a whole vocabulary comes from a float32 log-sum-exp. A number that falls into its
    rounding, beyond the weight of all tokens, goes to the likeliest token, not to the least likely.
    """
    least, most = kept.ranks_passing(uniforms * kept.mass)
    is_at_hand = least < kept.num_tokens
    is_decided = (least == most) & (is_at_hand | (kept.num_tokens == kept.vocab_size))
    return least * is_at_hand, is_decided
