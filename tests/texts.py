"""Varied texts for tests of tokenizers and detokenizers, from a seeded generator and by hand."""
# ruff: noqa: RUF001 (look-alikes are the point)

import random
import unicodedata
from collections.abc import Callable

HAND_WRITTEN = (
    "",
    " ",
    "\n",
    "\r\n\r\n",
    "\t\tif x:\n\t\t\treturn 'y'  # why\n",
    "Hello, world! It's 2026; they'll say we've DON'T I'M he'd.",
    "it’s don’t — “quoted” … «guillemets»",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 0x1F; }  // €£¥",
    "def f(x: list[int]) -> None:\n    '''doc'''\n    print(f'{x!r:>10}')\n",
    "SELECT * FROM t WHERE a >= 10.5e-3 AND b != 'x''y';",
    '{"key": [1, 2.50, -3e10, null, true], "nested": {"é": "\\u00e9"}}',
    "https://example.com/a/b?c=d&e=%20f#g user@example.org",
    "3.14159 1,000,000 007 ½ Ⅷ ٣٤٥ १२३ ๑๒๓ 1️⃣ x² H₂O",
    "日本語のテキストと中文文本，以及한국어 문장。",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇫🇷 ❤️ ☺︎ 👨🏿‍🚀 🧑‍🤝‍🧑",
    "e\u0301 n\u0303 Z\u0351\u036b\u0343a\u0363\u0326l\u0348g\u0324o\u034e \u0301alone",
    "\u202eright to left\u202c \u2066isolated\u2069 \u200f\u200e zero\u200bwidth\ufeffbom",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u1680h\u205fi",
    "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x13\x14\x16\x1b[0m\x1d\x1f\x7f\x80\x9f",
    "  leading, trailing  ",
    "a  b   c    d     e      f       g        h",
    " \n \n\n  \n\t \r \r\n x \n",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|<|im_end|>|> <|endoftext|><|endoftext|> <|IM_END|> < |im_end|>",
    "<s>[INST] <<SYS>>x<</SYS>> y [/INST] z </s> <unk> <0x0A> <pad>",
    "<reponame>r<file_sep>f<filename>n<gh_stars>3<jupyter_start><empty_output>",
    "\ufffd\ufffe\uffff\U0010ffff\U000f0000\ue000",
    "ﬁ ﬂ ſ K Å ẞ İ ı ǅ 's'S'ſ 'LL 'Ll",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "The quick brown fox jumps over the lazy dog. " * 40,
    "0123456789" * 60,
    " " * 300,
    "\n" * 100,
    "漢" * 200,
)

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
    "one",
    "you",
    "were",
    "all",
    "her",
    "she",
    "there",
    "would",
    "their",
    "we",
    "him",
    "been",
    "has",
    "when",
    "who",
    "will",
    "no",
    "more",
    "if",
    "out",
    "so",
    "up",
    "said",
    "what",
    "its",
    "about",
    "than",
    "into",
    "them",
    "can",
    "only",
    "other",
    "time",
    "new",
    "some",
    "could",
    "these",
    "two",
    "may",
    "first",
    "then",
    "do",
    "any",
    "like",
    "my",
]
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<s>",
    "</s>",
    "<unk>",
    "<reponame>",
    "<0x41>",
)
SPACES = (
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\x0b",
    "\x85",
    " \n ",
)
MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»…—–‘’“”。、，！？؟।"
EMOJI = ("👍", "👍🏽", "👩‍👩‍👧", "🏳️‍🌈", "🇩🇪", "❤️", "🧑‍💻", "1️⃣", "☺")
ENGLISH_ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "’s", "'")
SCRIPTS = (
    (0x0041, 0x024F), (0x0370, 0x03FF), (0x0400, 0x052F), (0x0590, 0x05FF), (0x0600, 0x06FF), (0x0900, 0x097F),
    (0x0E00, 0x0E7F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0x0300, 0x036F), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x2BFF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
)  # fmt: skip


def varied_texts(count: int, seed: int = 0) -> list[str]:
    """Give the texts written by hand, then drawn ones up to `count`; the same for the same seed."""
    draw = random.Random(seed)  # noqa: S311 (a test wants the same numbers every time)
    makers = (
        _prose,
        _code,
        _script,
        _spaces,
        _digits,
        _anything,
        _assigned,
        _mixture,
        _with_specials,
    )
    texts = list(HAND_WRITTEN)
    while len(texts) < count:
        texts.append(makers[len(texts) % len(makers)](draw))
    return texts[:count]


def _prose(draw: random.Random) -> str:
    words = [
        draw.choice(WORDS) + draw.choice(("", "", "", *ENGLISH_ENDINGS))
        for _ in range(draw.randint(1, 40))
    ]
    styled = [draw.choice((str, str, str.capitalize, str.upper))(word) for word in words]
    return draw.choice((" ", " ", "  ", "\n")).join(styled) + draw.choice(
        ("", ".", "?", "!", "...")
    )


def _code(draw: random.Random) -> str:
    lines = []
    for _ in range(draw.randint(1, 8)):
        parts = [
            draw.choice((*WORDS, "_x", "i", "0", "0x7f", '"s"')) + draw.choice(MARKS)
            for _ in range(6)
        ]
        lines.append(" " * draw.randint(0, 12) + draw.choice(("", " ")).join(parts))
    return draw.choice(("\n", "\r\n")).join(lines)


def _script(draw: random.Random) -> str:
    first, last = draw.choice(SCRIPTS)
    return "".join(
        draw.choice((chr(draw.randint(first, last)),) * 5 + (" ",))
        for _ in range(draw.randint(1, 40))
    )


def _spaces(draw: random.Random) -> str:
    return "".join(draw.choice((*SPACES, draw.choice(WORDS))) for _ in range(draw.randint(1, 20)))


def _digits(draw: random.Random) -> str:
    return "".join(draw.choice("0123456789٣४½²Ⅷ., -+e") for _ in range(draw.randint(1, 40)))


def _anything(draw: random.Random) -> str:
    return _from(
        draw,
        lambda: draw.randint(0, 0x10FFFF),
        is_wanted=lambda point: not 0xD800 <= point < 0xE000,
    )


def _assigned(draw: random.Random) -> str:
    return _from(
        draw,
        lambda: draw.randint(0, 0x323AF),
        is_wanted=lambda point: unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co"),
    )


def _mixture(draw: random.Random) -> str:
    pieces: list[Callable[[], str]] = [
        lambda: draw.choice(WORDS),
        lambda: draw.choice(SPACES),
        lambda: draw.choice(MARKS),
        lambda: draw.choice(EMOJI),
        lambda: draw.choice(ENGLISH_ENDINGS),
        lambda: chr(draw.randint(0, 127)),
        lambda: _script(draw)[:3],
    ]
    return "".join(draw.choice(pieces)() for _ in range(draw.randint(1, 30)))


def _with_specials(draw: random.Random) -> str:
    cut = [special[: draw.randint(1, len(special))] for special in SPECIALS]
    return "".join(
        draw.choice((*SPECIALS, *cut, *SPACES, *WORDS[:9])) for _ in range(draw.randint(1, 12))
    )


def _from(
    draw: random.Random, point: Callable[[], int], *, is_wanted: Callable[[int], bool]
) -> str:
    points = [candidate for _ in range(draw.randint(1, 60)) if is_wanted(candidate := point())]
    return "".join(map(chr, points))
