#!/usr/bin/env python3
"""Tests many parallel requests for the same prefix, on the real model.

- Equal cold prompts spread over the workers.
- A hot prefix is replicated to other workers when its holder is busy.
- A tenant neither finds nor pulls another tenant's cached prefix.

  service_crowd_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k hot]

Standard library only.
"""

from cluster import wait_until
from service_case import BLOCK, SEEN_TIMEOUT_S, ServiceTest, blocks_of, main


class Crowd(ServiceTest):
    prefill, decode = 0, 3
    worker_arguments = ("--threads=1", "--kv-blocks=1024")

    def jobs(self, prompts, max_tokens=4, **fields):
        return [{"id": str(i), "prompt_token_ids": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                 **fields} for i, prompt in enumerate(prompts)]

    def answers(self, jobs, concurrency=1):
        results, code = self.cluster.generate(jobs, concurrency=concurrency)
        self.assertEqual(code, 0, results)
        return [results[job["id"]] for job in jobs]

    def units(self):
        """Waits until the router's index matches the workers' pools. Returns {worker id: indexed units}."""
        def settled():
            pools = {name: blocks_of(worker, "cached") for name, worker in self.cluster.wait_at_rest().items()}
            index = {worker["worker_id"]: worker["units"] for worker in self.cluster.status()["index"]["workers"]}
            return index if index == pools else None
        return wait_until(settled, SEEN_TIMEOUT_S, "the index and the pools alike")

    def added(self, before):
        return {name: units - before[name] for name, units in self.units().items()}

    def test_equal_cold_prompts_at_once_spread_over_the_workers(self):
        before = self.units()
        prompt = self.prompt(400)
        results = self.answers(self.jobs([prompt] * 9), concurrency=9)
        computed_by = [result["decode_worker"] for result in results]
        self.assertEqual(set(computed_by), set(before), "every worker must compute some of the prompts")
        self.assertEqual({tuple(result["token_ids"]) for result in results}, {tuple(results[0]["token_ids"])})
        self.assertTrue(all(units == len(prompt) // BLOCK for units in self.added(before).values()))

    def test_a_hot_prefix_is_held_by_more_than_its_first_holder(self):
        before = self.units()
        prefix = self.prompt(320, 500)
        [first] = self.answers(self.jobs([prefix]))
        holder = first["decode_worker"]
        held = self.added(before)
        self.assertEqual({name for name, units in held.items() if units > 0}, {holder})
        # Long answers keep the holder busy, so that it cannot serve all prompts.
        prompts = [prefix + self.prompt(100, 1000 + 120 * i) for i in range(12)]
        results = self.answers(self.jobs(prompts, max_tokens=24), concurrency=len(prompts))
        workers = {result["decode_worker"] for result in results}
        self.assertIn(holder, workers)
        self.assertGreater(len(workers), 1)
        held = self.added(before)
        for name in workers - {holder}:
            self.assertGreaterEqual(held[name], len(prefix) // BLOCK, f"{name} must hold the prefix now")
        # A later request finds the prefix on any worker.
        [late] = self.answers(self.jobs([prefix + self.prompt(40, 3000)]))
        self.assertEqual(late["usage"]["cached_tokens"], len(prefix) // BLOCK * BLOCK)

    def test_the_cached_prefix_of_another_tenant_is_neither_found_nor_pulled(self):
        prompt = self.prompt(300, 2000)
        warm = self.jobs([prompt] * 2, tenant="theirs")
        self.assertEqual([result["usage"]["cached_tokens"] for result in self.answers(warm)], [0, 299 // BLOCK * BLOCK])
        self.units()  # wait until the router knows the cached prompt
        cold, again = self.answers(self.jobs([prompt] * 2, tenant="mine"))
        self.assertEqual(cold["usage"]["cached_tokens"], 0)
        self.assertEqual(cold["ledger"].get("pulled_tokens", 0), 0)
        self.assertEqual(again["usage"]["cached_tokens"], 299 // BLOCK * BLOCK)


if __name__ == "__main__":
    main(__doc__)
