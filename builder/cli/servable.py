"""What of a checkpoint concerns the serving side alone, asked before it is compiled."""

from builder.checkpoint.tokenizer_files import TokenizerFiles
from triton_backend.chat_template import check_template
from triton_backend.tokenizer import check_tokenizer


def refuse_unservable(files: TokenizerFiles) -> None:
    """Refuse a tokenizer or a chat template that could be packed, but not served afterwards.

    The pipeline can't ask: of builder, the command line alone knows the serving side.

    Raises:
        UserError: names what is wrong with it.
    """
    check_tokenizer(files.tokenizer_json)
    if files.chat_template is not None:
        check_template(files.chat_template)
