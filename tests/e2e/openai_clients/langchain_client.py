"""LangChain's chat model and completion model. Run by openai_clients_test.py with HOST:PORT; prints the answer."""

import sys

import openai
from langchain_openai import ChatOpenAI, OpenAI

address = f"http://{sys.argv[1]}/v1"
model = openai.OpenAI(base_url=address, api_key="none").models.list().data[0].id
ask = dict(model=model, base_url=address, api_key="none", temperature=0, max_retries=0, timeout=300)
question = [("user", "What is gravity?")]

chat = ChatOpenAI(**ask, max_tokens=40)
whole = chat.invoke(question)
assert whole.response_metadata["finish_reason"] == "length", whole
assert whole.usage_metadata["output_tokens"] == 40, whole
assert "".join(piece.content for piece in chat.stream(question)) == whole.content
others = [answer.content for answer in chat.batch(["What is gravity?", "What is water?"])]  # at the same time
assert others[0] == whole.content != others[1], others
assert OpenAI(**ask, max_tokens=8).invoke("Water is")


def fails(error, extra_body=None, **fields):
    try:
        ChatOpenAI(**{**ask, **fields}, extra_body=extra_body).invoke(question)
    except error as found:
        return found
    raise AssertionError(f"no {error} for {fields}")


assert "temperature is 200" in str(fails(openai.BadRequestError, temperature=200))
assert fails(openai.NotFoundError, model="gpt-9").code == "model_not_found"
fails(openai.APITimeoutError, {"ignore_eos": True}, max_tokens=7000, timeout=0.5)  # cancelled

for number, _ in enumerate(ChatOpenAI(**ask, max_tokens=7000, extra_body={"ignore_eos": True}).stream(question)):
    if number == 5:
        break  # closes the stream
print(whole.content, end="")
