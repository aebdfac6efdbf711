#!/usr/bin/env python3
"""Tests of `baton chat` at a pseudo-terminal and with input from a pipe.

  service_chat_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k paste]

Standard library only.
"""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time
import unittest

from cluster import Cluster, children_of, end_with_parent, is_running, wait_until
from fleet import free_port
from service_case import ARGUMENTS, SEEN_TIMEOUT_S, ServiceTest, baton, main

PASTE_BEGIN, PASTE_END = "\033[200~", "\033[201~"
RESET = "\033[0m"
ESCAPE = r"\033\[[0-9;?]*[a-zA-Z]"


class Terminal:
    """Runs `baton chat` at a pseudo-terminal; a context manager."""

    def __init__(self, router, *arguments, directory=None, history="", **variables):
        self.master, slave = pty.openpty()
        self.modes = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [os.path.abspath(baton()), "chat", "--router", router, "--temperature=0", f"--history={history}", *arguments], stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, cwd=directory, env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **variables})
        os.close(slave)
        self.prompt = "> " if variables.get("NO_COLOR") else f">{RESET} "
        self.shown = ""  # output since the last wait

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def type(self, text):
        left = text.encode()
        while left:
            left = left[os.write(self.master, left):]

    def read_until(self, condition, what):
        end = time.monotonic() + SEEN_TIMEOUT_S
        while not condition():
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise TimeoutError(f"{what} is not shown, but {self.shown!r}")
            with contextlib.suppress(OSError):
                self.shown += os.read(self.master, 4096).decode(errors="replace")

    def wait_for(self, text):
        """Waits for `text` in the output. Returns the output up to and including it."""
        self.read_until(lambda: text in self.shown, repr(text))
        seen, self.shown = self.shown.split(text, 1)
        return seen + text

    def begin_answer(self, question):
        """Types a question and waits for the first text of its answer."""
        self.type(question + "\r")
        self.wait_for("\033[?2004l")  # the program has read the line
        self.read_until(lambda: re.sub(ESCAPE, "", self.shown).strip(), "an answer")

    def say(self, line):
        """Types a line. Returns the output up to the next prompt."""
        self.type(line + "\r")
        self.wait_for("\033[?2004l")  # the program has read the line
        return self.ready()

    def ready(self):
        """Waits for the prompt, and until the terminal has left its line mode. Returns the output."""
        shown = self.wait_for("\033[?2004h") + self.wait_for(self.prompt)
        wait_until(lambda: not termios.tcgetattr(self.master)[3] & termios.ICANON, SEEN_TIMEOUT_S, "keys one by one")
        return shown

    def saved(self):
        """Returns the conversation's messages as (role, content), from /save."""
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "saved.jsonl"
            self.say(f"/save {path}")
            return [(message["role"], message["content"]) for message in json.loads(path.read_text())["messages"]]

    def end(self):
        """Sends Ctrl-D. Returns the exit code."""
        self.type("\x04")
        return self.wait()

    def wait(self):
        """Waits for the program's end and returns its exit code. Reads its output, because a program that ends first waits until
        the terminal has taken all output."""
        def ended():
            if select.select([self.master], [], [], 0)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.master, 4096).decode(errors="replace")
            return self.process.poll() is not None
        wait_until(ended, SEEN_TIMEOUT_S, "the end of the chat")
        return self.process.returncode

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)


class AtATerminal(ServiceTest):
    worker_arguments = ("--kv-blocks=512", "--threads=1")

    def terminal(self, *arguments, **options):
        terminal = self.enterContext(Terminal(self.cluster.router, *arguments, **options))
        terminal.ready()
        return terminal

    def test_a_conversation_can_be_undone_saved_and_begun_anew(self):
        terminal = self.terminal("--max-tokens=4", "--system=Be brief.")
        terminal.say("Hello")
        terminal.say("And then?")
        saved = terminal.saved()
        self.assertEqual([role for role, _ in saved], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual(saved[1], ("user", "Hello"))
        self.assertTrue(saved[2][1])
        terminal.say("/undo")
        self.assertEqual(terminal.saved(), saved[:3])
        terminal.say("/system Be long.")
        self.assertEqual(terminal.saved()[0], ("system", "Be long."))
        terminal.say("/reset")
        self.assertEqual(terminal.saved(), [("system", "Be long.")])
        self.assertIn("did you mean /undo?", terminal.say("/udno"))
        self.assertIn("/save FILE", terminal.say("/help"))
        with tempfile.NamedTemporaryFile() as existing:
            self.assertIn(f"{existing.name} exists; name a new file", terminal.say(f"/save {existing.name}"))
        terminal.type("/quit\r")
        self.assertEqual(terminal.wait(), 0)

    def test_lines_can_be_edited_and_come_back_from_the_history(self):
        terminal = self.terminal("--max-tokens=1")
        terminal.say("Hexlo\x1b[D\x1b[D\x7fl")  # two to the left, delete one, insert one
        self.assertEqual(terminal.saved()[0], ("user", "Hello"))
        terminal.say("/reset")
        terminal.say("\x1b[A\x1b[A\x1b[A")  # back past /reset and /save
        self.assertEqual(terminal.saved()[0], ("user", "Hello"))

    def test_the_history_lasts_for_the_next_conversation_and_is_private(self):
        with tempfile.TemporaryDirectory() as directory:
            history = pathlib.Path(directory) / "state" / "baton" / "chat_history"
            terminal = self.terminal("--max-tokens=1", history=history)
            terminal.say(PASTE_BEGIN + "one\rtwo – zwölf" + PASTE_END)
            terminal.say("three")
            self.assertEqual(terminal.end(), 0)
            self.assertEqual(history.stat().st_mode & 0o777, 0o600)
            self.assertEqual(history.parent.stat().st_mode & 0o777, 0o700)
            terminal = self.terminal("--max-tokens=1", history=history)
            terminal.say("\x1b[A\x1b[A")
            self.assertEqual(terminal.saved()[0], ("user", "one\ntwo – zwölf"))

    def test_the_history_outlives_a_killed_conversation(self):
        with tempfile.TemporaryDirectory() as directory:
            history = pathlib.Path(directory) / "chat_history"
            terminal = self.terminal("--max-tokens=1", history=history)
            terminal.say("one")
            terminal.process.kill()
            terminal.process.wait()
            terminal = self.terminal("--max-tokens=1", history=history)
            terminal.say("\x1b[A")
            self.assertEqual(terminal.saved()[0], ("user", "one"))

    def test_a_history_that_cannot_be_kept_disturbs_nothing(self):
        for history in ("/dev/null/chat_history", "/proc/none"):
            terminal = self.terminal("--max-tokens=1", history=history)
            terminal.say("Hello")
            self.assertEqual(terminal.end(), 0)

    def test_a_question_is_asked_again_if_the_router_dies_at_that_moment(self):
        terminal = self.terminal("--max-tokens=2")
        for question in ("one", "two", "three"):
            [router] = [pid for pid, name in children_of(self.cluster.process.pid).items()
                        if "router" in name and is_running(pid)]
            os.kill(router, signal.SIGKILL)
            terminal.say(question)
        messages = terminal.saved()
        self.assertEqual([content for role, content in messages if role == "user"], ["one", "two", "three"])
        self.assertEqual([role for role, _ in messages], 3 * ["user", "assistant"])

    def test_a_paste_of_many_lines_is_one_turn(self):
        terminal = self.terminal("--max-tokens=1")
        terminal.say(PASTE_BEGIN + "one\rtwo – zwölf\r\tthree\r" + PASTE_END)
        self.assertEqual(terminal.saved()[0], ("user", "one\ntwo – zwölf\n\tthree"))

    def test_ctrl_c_ends_an_answer_and_keeps_its_text(self):
        terminal = self.terminal("--ignore-eos")
        terminal.begin_answer("Tell me a story")
        terminal.interrupt()
        self.assertIn("broken off", terminal.wait_for("/undo removes it"))
        terminal.ready()
        saved = terminal.saved()
        self.assertEqual([role for role, _ in saved], ["user", "assistant"])
        self.assertTrue(saved[1][1])

    def test_ctrl_c_at_the_prompt_drops_the_line_and_nothing_else(self):
        terminal = self.terminal("--max-tokens=1")
        terminal.say("Hello")
        terminal.type("half a li")
        terminal.wait_for("li")
        terminal.interrupt()
        terminal.wait_for("Ctrl-D ends")
        terminal.ready()
        terminal.say("Again")
        self.assertEqual([text for role, text in terminal.saved() if role == "user"], ["Hello", "Again"])

    def test_a_signal_at_the_prompt_restores_the_terminal_and_saves_the_conversation(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number), tempfile.TemporaryDirectory() as directory:
                terminal = self.terminal("--max-tokens=1", directory=directory)
                terminal.say("Hello")
                terminal.type("half a li")
                terminal.wait_for("li")
                self.assertNotEqual(termios.tcgetattr(terminal.master), terminal.modes)
                terminal.process.send_signal(number)
                terminal.wait_for("\033[?2004l")
                self.assertEqual(terminal.wait(), 130)
                self.assertEqual(termios.tcgetattr(terminal.master), terminal.modes)
                saved, = pathlib.Path(directory).iterdir()
                self.assertIn(saved.name, terminal.shown)
                roles = [message["role"] for message in json.loads(saved.read_text())["messages"]]
                self.assertEqual(roles, ["user", "assistant"])

    def test_a_signal_during_an_answer_saves_the_conversation(self):
        with tempfile.TemporaryDirectory() as directory:
            terminal = self.terminal("--ignore-eos", directory=directory)
            terminal.begin_answer("Tell me a story")
            terminal.process.send_signal(signal.SIGTERM)
            self.assertEqual(terminal.wait(), 130)
            saved, = pathlib.Path(directory).iterdir()
            self.assertEqual(json.loads(saved.read_text())["messages"][0]["content"], "Tell me a story")

    def test_a_conversation_without_messages_is_not_saved(self):
        with tempfile.TemporaryDirectory() as directory:
            terminal = self.terminal("--system=Be brief.", directory=directory)
            terminal.process.send_signal(signal.SIGTERM)
            self.assertEqual(terminal.wait(), 130)
            self.assertEqual(list(pathlib.Path(directory).iterdir()), [])

    def test_only_terminals_without_no_color_get_colours(self):
        bold, dim = "\033[1m", "\033[2m"
        with Terminal(self.cluster.router) as terminal:
            shown = terminal.ready()
            self.assertIn(dim, shown)
            self.assertTrue(shown.endswith(f"{bold}>{RESET} "), shown)  # what the user types is not bold
        with Terminal(self.cluster.router, NO_COLOR="1") as terminal:
            shown = terminal.ready()
            self.assertNotIn(dim, shown)
            self.assertNotIn(bold, shown)
        piped = subprocess.run([baton(), "chat", "--router", self.cluster.router, "--max-tokens=1"], input="Hello\n",
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(piped.returncode, 0, piped.stderr)
        self.assertNotIn("\033", piped.stdout + piped.stderr)


class WhileTheRouterIsDown(unittest.TestCase):
    def test_a_message_waits_for_the_router_and_the_conversation_is_kept(self):
        address = f"127.0.0.1:{free_port()}"
        program = [baton(), "chat", "--router", address, "--max-tokens=2", "--temperature=0", "--system=Be brief."]
        for wait_ms, answers in ((200, False), (120_000, True)):
            chat = subprocess.Popen([*program, f"--reconnect-ms={wait_ms}"], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with chat, tempfile.TemporaryDirectory() as directory:
                saved = pathlib.Path(directory) / "saved.jsonl"
                chat.stdin.write(f"Hello\n/save {saved}\n")
                chat.stdin.flush()
                wait_until(lambda: saved.exists() or select.select([chat.stderr], [], [], 0)[0], SEEN_TIMEOUT_S, "a note")
                if not answers:
                    wait_until(lambda: saved.exists() and saved.read_text().endswith("\n"), SEEN_TIMEOUT_S, "the end of the wait")
                    messages = json.loads(saved.read_text())["messages"]
                    self.assertEqual([message["role"] for message in messages], ["system"])
                    chat.stdin.close()
                    self.assertIn("the message is taken back", chat.stderr.read())
                    continue
                with Cluster(ARGUMENTS.bin, ARGUMENTS.model, prefill=0, worker_arguments=("--kv-blocks=64",),
                             router_address=address):
                    wait_until(lambda: saved.exists() and saved.read_text().endswith("\n"), SEEN_TIMEOUT_S, "the answer")
                    messages = json.loads(saved.read_text())["messages"]
                    self.assertEqual([message["role"] for message in messages], ["system", "user", "assistant"])
                    chat.stdin.close()
                    self.assertEqual(chat.wait(60), 0)

    def test_a_message_waits_for_a_worker_of_a_router_that_has_none(self):
        address = f"127.0.0.1:{free_port()}"
        router = [f"{ARGUMENTS.bin}/baton-router", f"--listen={address}"]
        worker = [f"{ARGUMENTS.bin}/baton-worker", "--listen=127.0.0.1:0", f"--router={address}", f"--model={ARGUMENTS.model}",
                  "--kv-blocks=64", "--threads=1"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "preexec_fn": end_with_parent}
        with contextlib.ExitStack() as processes:
            def start(command):
                processes.callback(processes.enter_context(subprocess.Popen(command, **quiet)).kill)
            start(router)
            chat = subprocess.Popen([baton(), "chat", "--router", address, "--max-tokens=2", "--reconnect-ms=120000"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            processes.enter_context(chat)
            chat.stdin.write("Hello\n")
            chat.stdin.close()
            note = ""
            while "trying again" not in note:
                note = chat.stderr.readline()
                self.assertNotEqual(note, "", "the chat ended")
            start(worker)
            self.assertEqual(chat.wait(120), 0)
            self.assertTrue(chat.stdout.read().strip())

    def test_a_script_reads_answers_without_prompts(self):
        piped = subprocess.run([baton(), "chat", "--router", f"127.0.0.1:{free_port()}"], input="/help\n", capture_output=True,
                               text=True, timeout=60)
        self.assertEqual(piped.stdout.strip(), "")

    def test_settings_show_what_the_flags_set(self):
        piped = subprocess.run([baton(), "chat", "--router", f"127.0.0.1:{free_port()}", "--temperature=0.5", "--max-tokens=8"],
                               input="/settings\n", capture_output=True, text=True)
        self.assertIn("sampling: temperature 0.5 (flag), top-p 0.9 (default), max-tokens 8 (flag)\n", piped.stderr)

    def test_a_script_that_pipes_its_lines_does_not_wait(self):
        piped = subprocess.run([baton(), "chat", "--router", f"127.0.0.1:{free_port()}"], input="Hello\nAgain\n/quit\nNever asked\n",
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(piped.returncode, 1)
        self.assertEqual(piped.stderr.count("UNAVAILABLE"), 2, piped.stderr)
        self.assertEqual(piped.stdout.strip(), "")
        for key in ("Ctrl-C", "↑"):
            self.assertNotIn(key, piped.stderr, "the input is no terminal")
        self.assertNotIn("trying again", piped.stderr)

    def test_a_terminal_that_takes_no_escapes_gets_none(self):
        for kind in ("dumb", ""):
            with self.subTest(kind=kind), Terminal(f"127.0.0.1:{free_port()}", "--reconnect-ms=0", TERM=kind) as terminal:
                shown = terminal.wait_for("> ")
                terminal.type("Hello\r")
                shown += terminal.wait_for("the message is taken back") + terminal.wait_for("> ")
                self.assertNotIn("\033", shown)
                self.assertEqual(terminal.end(), 0)

    def test_a_paste_is_bounded(self):
        limit = 1 << 20
        with Terminal(f"127.0.0.1:{free_port()}", "--reconnect-ms=0") as terminal:
            terminal.ready()
            terminal.type(PASTE_BEGIN)
            for _ in range(limit // 65536 + 1):
                terminal.type("x" * 65536)
            terminal.type(PASTE_END)
            terminal.wait_for(f"the line has more than {limit} bytes")
            terminal.ready()
            self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_ends_the_wait(self):
        with Terminal(f"127.0.0.1:{free_port()}", "--reconnect-ms=3600000") as terminal:
            terminal.ready()
            terminal.type("Hello\r")
            terminal.wait_for("trying again")
            terminal.interrupt()
            terminal.wait_for("the message is taken back")
            terminal.ready()
            self.assertEqual(terminal.end(), 0)


if __name__ == "__main__":
    main(__doc__)
