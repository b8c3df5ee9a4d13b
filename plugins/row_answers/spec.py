"""The contract of RowAnswers: the arg-max of each row of logits, its N largest with their logits, its log-sum-exp.

Largest first, ties go to the lower id. The log-sum-exp is of `logits / temperature`, and 0 where the temperature asked is
0. A row with a NaN, or whose largest logit is infinite, has arg-max -1 and a NaN for its log-sum-exp.
"""

NAME = "RowAnswers"
