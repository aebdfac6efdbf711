"""Writes a model's tokenizer as a Hugging Face directory, for clients that count tokens. Needs `gguf` and `tokenizers`.

    tokenizer_directory.py MODEL.gguf DIRECTORY
"""

import json
import pathlib
import sys

import gguf
from tokenizers import decoders

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "oracle"))
from tokenizer_oracle import oracle  # noqa: E402

CONTROL, USER_DEFINED = 3, 4  # GGUF's kinds of tokens


def main():
    model, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    fields = gguf.GGUFReader(model).fields
    tokens, kinds = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    of_kind = {kind: [token for token, its in zip(tokens, kinds) if its == kind] for kind in (CONTROL, USER_DEFINED)}
    tokenizer = oracle(fields["tokenizer.ggml.pre"].contents(), tokens, fields["tokenizer.ggml.merges"].contents(),
                       of_kind[CONTROL], of_kind[USER_DEFINED])
    tokenizer.decoder = decoders.ByteLevel()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
              "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"].contents()],
              "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"].contents()],
              "model_max_length": fields["llama.context_length"].contents()}
    if template := fields.get("tokenizer.chat_template"):
        config["chat_template"] = template.contents()
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
