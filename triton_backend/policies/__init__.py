"""Who is admitted next: a table of policies by name, each a key function in a file of its own.

The least key goes first, and of equals the one that arrived first.
"""

from collections.abc import Mapping

from triton_backend.config import PolicyName
from triton_backend.policies import fair, fcfs, longest_prefix, priority, srpt
from triton_backend.policies.policy import Policy

POLICIES: Mapping[str, Policy] = {
    PolicyName.FCFS: Policy(fcfs.key, is_steady=True),
    PolicyName.PRIORITY: Policy(priority.key, is_steady=True),
    PolicyName.SRPT: Policy(srpt.key, is_steady=True),
    PolicyName.FAIR: Policy(fair.key, is_steady=False),
    PolicyName.LONGEST_PREFIX: Policy(longest_prefix.key, is_steady=False),
}
