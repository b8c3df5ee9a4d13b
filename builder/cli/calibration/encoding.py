"""Turns texts and chats into the token rows that a model is calibrated with."""

from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.cli.calibration.texts import CalibrationText, Sample
from builder.cli.gate.encoding import DAY
from builder.errors import RequestError, UserError
from builder.quant.calibration.samples import Samples
from triton_backend.chat_template import ChatTemplate
from triton_backend.tokenizer import Tokenizer


def encode_samples(text: CalibrationText, files: TokenizerFiles) -> Samples:
    """Give the ids of each sample: chats as the model's template writes them, where it has one.

    Raises:
        CheckpointError: the tokenizer or the template can't be used.
        UserError: the template refuses a chat.
    """
    tokenizer = Tokenizer(files.tokenizer_json, bos_token_id=files.bos_token_id, add_bos=False)
    template = None
    if files.chat_template is not None:
        template = ChatTemplate(
            files.chat_template,
            special_tokens=files.named_tokens,
            control_strings=tokenizer.control_strings,
            clock=lambda: DAY,
        )
    encoder = Encoder(tokenizer, template, files.prefix_ids)
    rows = []
    for number, sample in enumerate(text.samples, start=1):
        try:
            rows.append(encoder.encode(sample))
        except RequestError as error:
            raise UserError(f"sample {number} of {text.name} can't be used: {error}") from error
    control = range(tokenizer.vocab_size)
    return Samples(
        text.name,
        text.sha256,
        tuple(row for row in rows if row),
        frozenset(token for token in control if tokenizer.control_string(token) is not None),
    )


class Encoder:
    """Encodes samples with a tokenizer, and with a chat template if the model has one."""

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, prefix_ids: tuple[int, ...]
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._prefix_ids = prefix_ids

    def encode(self, sample: Sample) -> tuple[int, ...]:
        """Give the ids of a sample.

        Raises:
            RequestError: the template refuses it, or it is not valid Unicode.
        """
        if isinstance(sample, str):
            ids = self._tokenizer.encode(sample)
            return (*self._prefix_ids, *ids) if ids else ()
        if self._template is None:
            turns = "\n\n".join(turn.get("content", "") for turn in sample)
            return self.encode(turns)
        asks = sample[-1:] and sample[-1].get("role") == "user"
        segments = self._template.render(sample, add_generation_prompt=bool(asks))
        return tuple(self._tokenizer.encode_segments(segments))
