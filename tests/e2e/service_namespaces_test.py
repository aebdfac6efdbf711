#!/usr/bin/env python3
"""Tests lost packets, in one or both directions, between a router and workers in separate network namespaces.

service_namespaces_test.py --bin BUILD/bin [--model M.gguf] [unittest arguments, such as a test's name]

No connection breaks and no process gets an error, so the failure detectors must find the loss by timeouts. Every answer must equal
that of `baton run`, and no request or transfer may keep a block. If the machine does not permit namespaces, the exit code is 77:
not run. Standard library only.
"""

import sys
import threading
import time

from cluster import busy, wait_until
from namespaces import NamespacedFleet, permitted
from service_case import ARGUMENTS, CHUNK, SEEN_TIMEOUT_S, ServiceTest, inspect_tokens, main, read_texts, run

PROMPT = 1200  # tokens; the prefill and its transfer take many chunks
ATTEMPTS = 20
ROLES = {"prefill": "prefill", "decode-0": "decode", "decode-1": "decode"}


class Drops(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.fleet = cls.enterClassContext(NamespacedFleet(
            ARGUMENTS.bin, ARGUMENTS.model, ROLES,
            ("--threads=1", "--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=512")))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]
        cls.wanted, _ = run([cls.job(cls(), "")])

    def job(self, salt):
        return {"id": "it", "prompt_token_ids": self.prompt(PROMPT), "max_tokens": 120, "temperature": 0.8, "seed": 7,
                "ignore_eos": True, "cache_salt": salt}

    def decode_worker_where(self, condition):
        return next((self.fleet[name] for name, role in ROLES.items()
                     if role == "decode" and condition(*self.fleet.blocks(name))), None)

    def receiver(self):
        """Returns the decode worker that has a transfer in flight, or None."""
        return self.decode_worker_where(lambda _, in_flight: in_flight > 0)

    def decoder(self):
        """Returns the decode worker that has all KV of a prompt and generates, or None."""
        return self.decode_worker_where(lambda owned, in_flight: owned > 0 and in_flight == 0)

    def strike(self, salt, moment, drop):
        """Sends a request and calls `drop(host)` as soon as moment() returns a host. Returns False if the answer came first."""
        got = {}
        client = threading.Thread(target=lambda: got.update(self.fleet.generate([self.job(salt)], "--placement", "remote")[0]))
        client.start()
        try:
            host = wait_until(lambda: moment() or got, SEEN_TIMEOUT_S, "the moment to strike, or an answer")
            if struck := host is not got:
                drop(host)
            client.join()
        finally:
            self.fleet.heal()
        self.assert_same_answers(got, self.wanted, salt)
        return struck

    def check(self, salt, moment, drop):
        # On a busy machine the poll may miss the moment, so try several times.
        attempts = (self.strike(f"{salt} {attempt}", moment, drop) for attempt in range(ATTEMPTS))
        self.assertTrue(any(attempts), f"{salt}: the moment to strike never came")
        self.fleet.wait_whole()
        workers = self.fleet.wait_at_rest()
        self.assertFalse(any(busy(worker) for worker in workers.values()))

    def test_between_sender_and_receiver_in_mid_transfer(self):
        sender = self.fleet["prefill"]
        self.check("blocks are lost", self.receiver, sender.drop_to)
        self.check("requests for blocks are lost", self.receiver, lambda receiver: receiver.drop_to(sender))
        self.check("both are lost", self.receiver,
                   lambda receiver: (sender.drop_to(receiver), receiver.drop_to(sender)))

    def test_between_router_and_decode_worker(self):
        router = self.fleet["router"]
        for what, drop in (("tokens", lambda decoder: decoder.drop_to(router)), ("calls", router.drop_to),
                           ("both", lambda decoder: (decoder.drop_to(router), router.drop_to(decoder)))):
            with self.subTest(lost=what):
                self.check(f"{what} are lost", self.decoder, drop)

    def test_between_router_and_prefill_worker(self):
        router, prefill = self.fleet["router"], self.fleet["prefill"]
        for what, drop in (("reports", lambda _: prefill.drop_to(router)),
                           ("both ways", lambda _: (prefill.drop_to(router), router.drop_to(prefill)))):
            with self.subTest(lost=what):
                self.check(f"{what} are lost", self.receiver, drop)

    def test_a_path_that_loses_packets_again_and_again_delivers_everything(self):
        """Each loss is too short for a failure detector, and TCP retransmits."""
        sender, ended = self.fleet["prefill"], threading.Event()
        def lossy(receiver):
            def lose():
                while not ended.is_set():
                    for host, other in ((sender, receiver), (receiver, sender)):
                        host.drop_to(other)
                        time.sleep(0.02)
                        host.heal()
                        time.sleep(0.06)
            self.thread = threading.Thread(target=lose)
            self.thread.start()
            wait_until(lambda: self.receiver() is not receiver, SEEN_TIMEOUT_S, "the transfer's end")
            ended.set()
            self.thread.join()
        self.check("a lossy path", self.receiver, lossy)


if __name__ == "__main__":
    if reason := permitted():
        print(f"not run: network namespaces are not permitted here: {reason}")
        sys.exit(77)
    main(__doc__)
