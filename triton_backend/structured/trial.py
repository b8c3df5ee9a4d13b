"""A trial of a constraint: `python -m triton_backend.structured.trial`, as a process that may be killed.

A schema of 100 bytes can keep a compiler busy for minutes, and a thread in it can't be stopped. So an unknown
constraint is first compiled here, for a vocabulary of bytes and within bounds of processor time and memory.
JSON comes in by stdin, {"kind", "text"}, and goes out by stdout: {"grammar"} or {"refused"}.
"""

import json
import resource
import signal
import subprocess
import sys

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from builder.errors import EngineError, RequestError, UnavailableError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of, refusal
from triton_backend.subprograms import command_of

MAX_CPU_S = 0.5
"""A hundred fields with patterns take 0.01 s."""
MAX_MEMORY_BYTES = 2**30
MAX_WALL_S = 10.0
"""For a machine so loaded that the process gets no processor: that says nothing about the constraint."""
BOUNDS = frozenset({-signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV})
"""How the process dies of a constraint: of its time, of its memory, of its stack."""

TOO_LARGE = "constraint.text takes too long to compile; make it smaller."
TOO_COMPLEX = (
    "constraint.text is too complex to follow; give it fewer optional fields or choices. A grammar repeats by * or +"
    " (not by a rule that ends with itself), and reads each answer in one way."
)
BUSY = "the server is too busy to compile the constraint; try again later."


def limits() -> LLParserLimits:
    """Give what a grammar may cost: about 10 ms of processor time for a token and for a mask, and 20 MB of lexer states.

    An ambiguous grammar such as `s ::= s s | [a-z] | s s s` costs by the cube of the items in a row: 42 ms a mask with 1,000
    of them, 10 with 750, 2.5 with 500. A schema with 150 optional fields needs 750, one with 100 needs 500. The items
    of a step bound a mask over tokens of many letters: with 10,000 of them it took 110 ms.
    """
    return LLParserLimits(
        max_items_in_row=750,
        step_lexer_fuel=50_000,
        step_max_items=2000,
        max_lexer_states=10_000,
        max_grammar_size=50_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def tried(constraint: Constraint) -> str:
    """Compile a constraint in a process of its own; give its grammar, which compiles here as fast.

    Raises:
        UnavailableError: the machine is too busy to tell.
        RequestError: it is invalid, not supported, or takes too much time or memory.
        EngineError: the trial itself failed.
    """
    question = json.dumps({"kind": constraint.kind, "text": constraint.text})
    try:
        done = subprocess.run(  # noqa: S603 - no word of the constraint is on the command line
            command_of("triton_backend.structured.trial"),
            input=question.encode(),
            capture_output=True,
            check=False,
            timeout=MAX_WALL_S,
        )
    except (subprocess.TimeoutExpired, OSError):
        raise UnavailableError(BUSY) from None
    if done.returncode in BOUNDS:
        raise RequestError(TOO_LARGE)
    if done.returncode == -signal.SIGKILL:  # by the system, for want of memory
        raise UnavailableError(BUSY)
    if done.returncode != 0:
        raise EngineError(f"the trial of a constraint failed with exit code {done.returncode}")
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise RequestError(answer["refused"])
    grammar: str = answer["grammar"]
    return grammar


def _compiled(constraint: Constraint) -> str:
    try:
        grammar = grammar_of(constraint)
    except RecursionError:
        raise RequestError("constraint.text is nested too deep.") from None
    vocabulary = LLTokenizer(ByteVocabulary(), n_vocab=257)  # type: ignore[arg-type]
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits())
    first = matcher.compute_bitmask()
    if matcher.is_error():
        raise refusal(constraint.kind, matcher.get_error())
    if not matcher.is_accepting() and not any(_goes_on(matcher, byte) for byte in _ids(first)):
        raise RequestError(TOO_COMPLEX)
    return grammar


def _ids(mask: bytes) -> list[int]:
    bits = int.from_bytes(mask, "little")
    return [each for each in range(256) if bits >> each & 1]


def _goes_on(matcher: LLMatcher, byte: int) -> bool:
    """Tell whether an answer that begins with a byte is within the limits yet: an object meets all its fields there."""
    began = matcher.deep_copy()
    if not began.consume_token(byte):
        return False
    began.compute_bitmask()
    return not began.is_error()


class ByteVocabulary:
    """The smallest vocabulary: each byte, and an end. All that may take long is done for it too."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = 256
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: str) -> list[int]:
        """Encode a text."""
        return list(text.encode())


def main() -> None:
    """Answer one question; beyond its bounds the process dies by a signal."""
    question = json.loads(sys.stdin.buffer.read())
    constraint = Constraint(ConstraintKind(question["kind"]), question["text"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
    try:
        answer = {"grammar": _compiled(constraint)}
    except RequestError as refused:
        answer = {"refused": str(refused)}
    except BaseException:  # noqa: BLE001 - it had no memory left, or the compiler panicked
        answer = {"refused": TOO_LARGE}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
