"""LiteLLM as a library, its way to any server of OpenAI's API. Run by openai_clients_test.py with HOST:PORT; prints the answer."""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a list of prices
import litellm  # noqa: E402
import openai  # noqa: E402

litellm.suppress_debug_info = True
address = f"http://{sys.argv[1]}/v1"
model = openai.OpenAI(base_url=address, api_key="none").models.list().data[0].id
server = dict(base_url=address, api_key="none", num_retries=0, timeout=300, temperature=0)
ask = dict(server, model=f"openai/{model}", max_tokens=40, messages=[{"role": "user", "content": "What is gravity?"}])

whole = litellm.completion(**ask)
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 40, whole
chunks = list(litellm.completion(**ask, stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text, chunks
assert chunks[-1].usage.completion_tokens == 40, chunks[-1]
legacy = litellm.text_completion(**server, model=f"text-completion-openai/{model}", prompt="Water is", max_tokens=8)
assert legacy.choices[0].text, legacy


def fails(error, **fields):
    try:
        litellm.completion(**{**ask, **fields})
    except error as found:
        return found
    raise AssertionError(f"no {error} for {fields}")


long_answer = dict(max_tokens=7000, extra_body={"ignore_eos": True})
assert "temperature is 200" in str(fails(litellm.BadRequestError, temperature=200))
fails(litellm.NotFoundError, model="openai/gpt-9")
late = fails(litellm.Timeout, **long_answer, extra_headers={"Baton-Timeout-Ms": "300"})
assert "deadline has passed" in str(late), late
fails(litellm.Timeout, **{**long_answer, "timeout": 1})  # cancelled

cut = litellm.completion(**{**ask, **long_answer}, stream=True)
for number, _ in enumerate(cut):
    if number == 5:
        break
cut.completion_stream.response.close()
print(text, end="")
