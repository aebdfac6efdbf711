#!/usr/bin/env python3
"""Tests the router's status page in headless Chromium, with real workers. One of them is named <script>.

  service_status_page_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Without Chromium, the script ends with 77: not run. Standard library only.
"""

import html
import json
import pathlib
import sys
import unittest

import chromium
from cluster import START_TIMEOUT_S, Service, wait_until
from fleet import Process
from metrics_scrape import get
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, main

NOT_RUN = 77
NAME = "<script>alert('worker')</script>"
PROMPT = "Once upon a time there was a fox that lived in a wood, and every day it went to the river to look at the water. "


class StatusPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = pathlib.Path(ARGUMENTS.bin)
        cls.processes = []
        cls.addClassCleanup(lambda: [process.close() for process in cls.processes])
        router = Process([str(program / "baton-router"), "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", *PATIENT_ROUTER],
                         "listening")
        cls.processes.append(router)
        cls.address = router.popen.stdout.readline().split()[1]
        for role, name in (("decode", NAME), ("prefill", "plain")):
            cls.processes.append(Process(
                [str(program / f"baton-{role}-worker"), "--model", ARGUMENTS.model, "--router", router.address, "--worker-id", name,
                 "--listen=127.0.0.1:0", "--kv-blocks=1024", "--threads=1"], "ready"))
        cls.service = Service(ARGUMENTS.bin)
        cls.service.router = router.address
        wait_until(lambda: cls.service.status()["ready"], START_TIMEOUT_S, "a ready router")
        wait_until(lambda: len(cls.service.workers()) == 2, START_TIMEOUT_S, "both workers")
        results, code = cls.service.generate([{"id": f"{i}", "prompt": PROMPT * 2 + f"{i} times. " * 20, "max_tokens": 4,
                                               "temperature": 0} for i in range(3)])
        assert code == 0, results
        cls.browser = cls.enterClassContext(chromium.Chromium(chromium.find()))

    def open(self, width=1200):
        self.browser.open(f"http://{self.address}/", width)
        wait_until(lambda: self.browser.value("document.querySelectorAll('#workers details').length") == 2, SEEN_TIMEOUT_S,
                   "the page with both workers")

    def text(self, selector):
        return self.browser.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def focused(self):
        return self.browser.value("(document.activeElement.getAttribute('data-key') || document.activeElement.id || "
                                  "document.activeElement.textContent)")

    def test_the_page_shows_the_fleet(self):
        self.open()
        self.assertIn("Ready", self.text("#summary"))
        self.assertIn("2 workers", self.text("#summary"))
        self.assertIn("In flight", self.text("#requests"))
        workers = self.text("#workers")
        for word in ("plain", "prefill", "decode", "usable", "running", "Blocks owned", "Tokens from the cache", "Nodes of its tree"):
            self.assertIn(word, workers)
        wait_until(lambda: self.browser.value("document.querySelectorAll('#recent details').length") == 3, SEEN_TIMEOUT_S, "requests")
        self.assertGreater(self.browser.value("document.querySelectorAll('#recent rect').length"), 3)
        self.assertIn("prefill", self.text("#legend"))
        wait_until(lambda: "3 prompts" in self.text("#tree"), SEEN_TIMEOUT_S, "the shared prefix")
        self.assertEqual(self.browser.problems, [])

    def test_names_of_workers_are_text(self):
        self.open()
        wait_until(lambda: NAME in self.text("#recent"), SEEN_TIMEOUT_S, "the requests of this worker")
        self.assertIn(NAME, self.text("#workers"))
        markup = self.browser.value("document.querySelector('#workers').innerHTML")
        self.assertIn(html.escape(NAME, quote=False), markup)
        self.assertEqual(self.browser.value("document.querySelectorAll('main script, main img').length"), 0)
        self.assertEqual(self.browser.problems, [])
        # The policy would stop a script that got into the page.
        self.browser.value("(() => { const evil = document.createElement('script'); evil.textContent = 'window.ran = true'; "
                           "document.body.append(evil); })()")
        self.assertIsNone(self.browser.value("window.ran"))
        self.browser.problems.clear()
        for path in ("/status.json", "/"):
            self.assertNotIn(NAME, get(self.address, path)[2])

    def test_everything_works_by_keyboard(self):
        self.open()
        self.browser.value("document.querySelector('h1').tabIndex = -1, document.querySelector('h1').focus()")
        self.browser.press("Tab")
        self.assertEqual(self.focused(), "pause")
        self.browser.press("Enter", text="\r")
        self.assertEqual(self.browser.value("document.getElementById('pause').getAttribute('aria-pressed')"), "true")
        self.browser.press("Space", text=" ")
        self.assertEqual(self.browser.value("document.getElementById('pause').getAttribute('aria-pressed')"), "false")
        self.browser.press("Tab")
        first = self.focused()
        self.assertTrue(first.startswith("worker "), first)
        self.browser.press("Enter", text="\r")
        self.assertTrue(self.browser.value("document.querySelector('#workers details').open"))
        # The page draws itself again; what is open stays open, and the focus stays.
        self.browser.value("document.querySelector('#workers details').setAttribute('data-old', '')")
        wait_until(lambda: self.browser.value("document.querySelector('[data-old]') === null"), SEEN_TIMEOUT_S, "a new drawing")
        self.assertTrue(self.browser.value("document.querySelector('#workers details').open"))
        self.assertEqual(self.focused(), first)
        reached = set()
        for _ in range(40):
            self.browser.press("Tab")
            reached.add(self.focused())
        self.assertTrue(any(key.startswith("request ") for key in reached), reached)
        self.assertTrue(any(key.startswith("node ") for key in reached), reached)
        self.assertIn("Metrics", reached)

    def test_it_fits_into_360_pixels(self):
        self.open(width=360)
        self.browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 360)
        wide = self.browser.value("[...document.querySelectorAll('main *')].filter((one) => "
                                  "one.getBoundingClientRect().right > 361).map((one) => one.outerHTML.slice(0, 200))")
        self.assertEqual(wide, [])

    def test_a_router_that_is_gone_is_said(self):
        self.open()
        self.browser.value("window.fetch = () => Promise.reject(new Error('gone'))")
        wait_until(lambda: not self.browser.value("document.getElementById('trouble').hidden"), SEEN_TIMEOUT_S, "the message")
        self.assertIn("does not answer: gone", self.text("#trouble"))


if __name__ == "__main__":
    if chromium.find() is None:
        print("not run: Chromium is missing (scripts/install_packages.sh --browser)")
        sys.exit(NOT_RUN)
    main(__doc__)
