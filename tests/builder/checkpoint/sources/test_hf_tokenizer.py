import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.errors import CheckpointError, UnsupportedError
from tests.models import CHAT_TEMPLATE, tiny_llama, tiny_tokenizer


def edit(path: Path, **changed: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    merged = {**content, **changed}
    path.write_text(
        json.dumps({name: value for name, value in merged.items() if value is not None})
    )


def read(folder: Path) -> TokenizerFiles:
    return open_checkpoint(str(folder)).tokenizer


def end_ids(files: TokenizerFiles) -> tuple[int, ...]:
    return tuple(token.id for token in files.end_tokens)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path)


def test_tokenizer_json_is_passed_on_byte_for_byte(folder: Path) -> None:
    files = read(folder)
    assert files.tokenizer_json == (folder / "tokenizer.json").read_bytes()
    assert files.num_tokens == 259


def test_truncation_and_padding_are_switched_off(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(folder / "tokenizer.json"))
    loaded = Tokenizer.from_buffer(read(folder).tokenizer_json)
    assert len(loaded.encode("a" * 100).ids) == 100
    assert len(loaded.encode("a").ids) == 1


# End tokens: the union of all places, each with who named it.


def test_end_tokens_unite_all_files_and_say_who_named_them(folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=10)
    edit(folder / "generation_config.json", eos_token_id=[11, 10])
    edit(folder / "tokenizer_config.json", eos_token="<|im_end|>")  # noqa: S106 (no password)
    assert {token.id: token.sources for token in read(folder).end_tokens} == {
        10: ("config.json eos_token_id", "generation_config.json eos_token_id"),
        11: ("generation_config.json eos_token_id",),
        256: ("known turn end <|endoftext|>",),
        258: ("tokenizer_config.json eos_token", "known turn end <|im_end|>"),
    }


def test_end_tokens_know_their_text(folder: Path) -> None:
    assert [(token.id, token.text) for token in read(folder).end_tokens] == [
        (256, "<|endoftext|>"),
        (258, "<|im_end|>"),
    ]


def test_a_missing_generation_config_is_no_error(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    files = read(folder)
    assert files.generation_config == {}
    assert end_ids(files) == (256, 258)


def test_a_turn_end_that_is_an_ordinary_token_does_not_end_answers(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, vocab_size=260, eos_token_id=None)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert 259 not in end_ids(read(folder))


def test_an_end_token_may_be_written_as_an_object(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", eos_token={"content": "<|im_start|>", "special": True})
    assert 257 in end_ids(read(folder))


@pytest.mark.parametrize("value", [259, -1, 1 << 40])
def test_an_end_token_outside_the_vocabulary_is_refused(value: int, folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=value)
    with pytest.raises(
        CheckpointError, match=f"generation_config.json eos_token_id is {value}, outside"
    ):
        read(folder)


@pytest.mark.parametrize("value", [True, 1.0, ["2"], [[2]]])
def test_an_end_token_that_is_no_id_is_refused(value: object, folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=value)
    with pytest.raises(CheckpointError, match="must be an id or a list of ids"):
        read(folder)


def test_an_end_token_that_the_tokenizer_lacks_is_refused(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", eos_token="</s>")  # noqa: S106
    with pytest.raises(
        CheckpointError, match="eos_token is '</s>', which the tokenizer does not have"
    ):
        read(folder)


def test_added_tokens_must_be_in_tokenizer_json(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", added_tokens_decoder={"258": {"content": "<|im_end|>"}})
    read(folder)
    for added in (
        {"257": {"content": "<|im_end|>"}},
        {"259": {"content": "<|tool|>"}},
        {"258": {}},
    ):
        edit(folder / "tokenizer_config.json", added_tokens_decoder=added)
        with pytest.raises(CheckpointError, match=r"which tokenizer\.json does not have there"):
            read(folder)


# Begin token: what completions get around them.


def with_bos_template(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", pair="<|im_start|> $A $B", special_tokens=[("<|im_start|>", 257)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def test_what_tokenizer_json_adds_by_itself_is_found(folder: Path) -> None:
    with_bos_template(folder)
    edit(folder / "tokenizer_config.json", add_bos_token=None, bos_token="<|im_start|>")  # noqa: S106
    files = read(folder)
    assert (files.prefix_ids, files.suffix_ids, files.bos_token_id) == ((257,), (), 257)


@pytest.mark.parametrize("has_template", [True, False])
@pytest.mark.parametrize("add_bos", [True, False, None])
def test_completions_get_around_them_what_transformers_puts_there(
    add_bos: bool | None, has_template: bool, folder: Path
) -> None:
    if has_template:
        with_bos_template(folder)
    edit(folder / "tokenizer_config.json", add_bos_token=add_bos, bos_token="<|im_start|>")  # noqa: S106
    files = read(folder)
    expected = AutoTokenizer.from_pretrained(folder)("hi").input_ids
    assert [*files.prefix_ids, *b"hi", *files.suffix_ids] == expected
    assert files.bos_token_id == 257


@pytest.mark.parametrize("template", ["<|im_start|>", "$A <|im_start|> $A"])
def test_a_post_processor_that_does_more_than_add_is_refused(template: str, folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    marker = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [text if part == "$A" else marker for part in template.split()],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [257], "tokens": ["<|im_start|>"]}
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UnsupportedError, match="does more than add tokens around a text"):
        read(folder)


def test_named_tokens_come_from_the_newer_file_first(folder: Path) -> None:
    edit(folder / "special_tokens_map.json", pad_token="<|endoftext|>", eos_token="<|endoftext|>")  # noqa: S106
    assert read(folder).named_tokens == {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


# Chat template: three possible places.


def test_a_template_in_its_own_file_wins(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("from the file")
    assert read(folder).chat_template == "from the file"


def test_a_template_in_tokenizer_config_is_found(folder: Path) -> None:
    assert read(folder).chat_template == CHAT_TEMPLATE


def test_a_template_in_chat_template_json_is_found(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", chat_template=None)
    edit(folder / "chat_template.json", chat_template="from json")
    assert read(folder).chat_template == "from json"


def test_no_template_is_no_error(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", chat_template=None)
    assert read(folder).chat_template is None


@pytest.mark.parametrize(
    "template",
    [
        [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}],
        {"default": "d", "tool_use": "t"},
    ],
)
def test_of_named_templates_the_default_is_taken(template: object, folder: Path) -> None:
    edit(folder / "tokenizer_config.json", chat_template=template)
    assert read(folder).chat_template == "d"


@pytest.mark.parametrize("template", [[{"name": "rag", "template": "t"}], {"rag": "t"}])
def test_named_templates_without_a_default_are_refused_by_name(
    template: object, folder: Path
) -> None:
    edit(folder / "tokenizer_config.json", chat_template=template)
    with pytest.raises(CheckpointError, match=r"chat templates \(rag\) but none named default"):
        read(folder)


def test_a_template_that_is_no_text_is_refused(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", chat_template=7)
    with pytest.raises(CheckpointError, match="must be text, not int"):
        read(folder)


# What is missing or does not fit.


@pytest.mark.parametrize("slow", ["tokenizer.model", "vocab.json"])
def test_an_absent_tokenizer_json_is_refused_with_how_to_convert(slow: str, folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="copy it from the model's publisher"):
        read(folder)
    (folder / slow).touch()
    with pytest.raises(CheckpointError, match=f"only {slow}. Convert once with: python -c"):
        read(folder)


@pytest.mark.parametrize("content", [b"{}", b"[]", b"", b'{"model": {"type": "BPE"}}', b"\xff"])
def test_a_tokenizer_json_that_does_not_load_is_named(content: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json can't be loaded"):
        read(folder)


def test_a_tokenizer_with_more_ids_than_rows_does_not_fit(folder: Path) -> None:
    files = read(folder)
    files.check_fits(259)
    with pytest.raises(CheckpointError, match="ids up to 258, but the config's vocab_size is 258"):
        files.check_fits(258)
