"""OpenAI's own client. Run by openai_clients_test.py with HOST:PORT; prints the answer."""

import sys
import openai

client = openai.OpenAI(base_url=f"http://{sys.argv[1]}/v1", api_key="none", max_retries=0, timeout=300)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
messages = [{"role": "user", "content": "What is gravity?"}]
ask = dict(model=model, messages=messages, max_tokens=40, temperature=0)

whole = client.chat.completions.create(**ask)
assert whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens > 0, whole
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == whole.choices[0].message.content, (text, whole)
usage = chunks[-1].usage  # the second request found the prompt cached
assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens), usage
assert usage.prompt_tokens_details.cached_tokens > 0, usage
legacy = client.completions.create(model=model, prompt=["Water is", "The sky is"], max_tokens=8, temperature=0, logprobs=2)
assert [choice.index for choice in legacy.choices] == [0, 1] and legacy.choices[0].logprobs.token_logprobs, legacy

def fails(error, **fields):
    try:
        client.chat.completions.create(**{**ask, **fields})
    except error as found:
        return found
    raise AssertionError(f"no {error} for {fields}")

assert fails(openai.BadRequestError, temperature=200).param == "temperature"
assert fails(openai.NotFoundError, model="gpt-9").code == "model_not_found"
late = fails(openai.InternalServerError, max_tokens=7000, extra_body={"ignore_eos": True}, extra_headers={"Baton-Timeout-Ms": "300"})
assert late.status_code == 504, late
fails(openai.APITimeoutError, max_tokens=7000, extra_body={"ignore_eos": True}, timeout=0.5)

cut = client.chat.completions.create(**{**ask, "max_tokens": 7000}, stream=True, extra_body={"ignore_eos": True})
for number, _ in enumerate(cut):
    if number == 5:
        cut.close()
        break
print(whole.choices[0].message.content, end="")
