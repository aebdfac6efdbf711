#!/usr/bin/env python3
"""Rehearses scripts/gpu_check.sh on the GPU emulator: packs a finished build, and runs the pack as on another machine.

    gpu_check_test.py --build build/release

The pack runs in a folder outside the tree, with an empty environment. Standard library only.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
PARTS = ["conformance", "ops", "model", "decode", "exactness", "services", "nccl", "bench", "peers", "sanitizer"]
PROGRAMS = ["baton", "baton-router", "baton-prefill-worker", "baton-decode-worker", "cuda_bench", "cuda_tests"]
PATH = "/usr/bin:/bin"
build = None


# In one process of cuda_bench each, and with the kernels that the engine's steps of this kind take.
KERNELS = {
    "prefill": ("baton_t1_warpgroups_f16_64", "baton_t1_decode_"),
    "chunk": ("baton_t1_warpgroups_f16_64", "baton_t1_decode_"),
    "chunk r1": ("baton_paged_attention_f16_64", "baton_t1_"),
    "attention": ("baton_t1_decode_f16_64", "baton_t1_warpgroups_"),
    "decode": ("baton_t1_decode_f16_64", "baton_t1_warpgroups_"),
}


def run(script, *arguments, **environment):
    return subprocess.run(["bash", str(script), "--run", "--device", "cuda-emulated", *arguments], cwd="/", capture_output=True, text=True,
                          env={"PATH": PATH} | environment, timeout=2200)


def has_torch():
    """Whether the Python that a pack finds has PyTorch."""
    return subprocess.run(["python3", "-c", "import torch"], capture_output=True, env={"PATH": PATH}).returncode == 0


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.pack = cls.scratch / "pack"
        # A small model stands in for the default one.
        models = cls.scratch / "models"
        models.mkdir()
        cls.model = (ROOT / "tests/testdata/models/tiny-q4_1.gguf").read_bytes()
        (models / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(cls.model)
        packed = subprocess.run([SCRIPT, "--pack", "--build", build, "--to", cls.pack, "--part-size", str(len(cls.model) // 2 - 1)],
                                capture_output=True, text=True, env=os.environ | {"BATON_MODEL_DIR": str(models)})
        assert packed.returncode == 0, packed.stdout + packed.stderr
        cls.listing = packed.stdout

    def outcomes(self, output):
        """Part → its result, from the table."""
        lines = [line for line in output.splitlines() if line[:12].strip() in PARTS]
        return {line[:12].strip(): line[13:23].strip() for line in lines}

    def test_every_part_passes_in_another_folder(self):
        out = self.scratch / "out"
        out.mkdir()
        ended = run(self.pack / "gpu_check.sh", OUT=str(out))
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        wanted = dict.fromkeys(PARTS, "passed") | {"sanitizer": "not run"}
        if not has_torch():
            wanted["peers"] = "not run"
        self.assertEqual(self.outcomes(ended.stdout), wanted, ended.stdout)
        result = json.loads(ended.stdout.splitlines()[-1])
        self.assertEqual(json.loads((out / "result.json").read_text()), result)
        figures = {figure["name"]: figure for figure in result["figures"]}
        self.assertEqual(figures["part.ops"]["outcome"], "passed")
        self.assertEqual(figures["part.ops"]["ratio"], round(figures["part.ops"]["value"] / figures["part.ops"]["limit"], 3))
        self.assertRegex(" ".join(result["conditions"]), r"numerics t1-sm90.* version .* 20\d\d-\d\d-\d\d")
        for name, figure in figures.items():
            self.assertEqual(figure["limit"] is None, figure["ratio"] is None, name)
        self.assertGreater(figures["read"]["value"], 0)
        self.assertGreater(figures["decode.Q8_0.batch_1"]["value"], 0)
        self.assertGreater(figures["chunk.BF16"]["value"], 0)
        self.assertGreater(figures["chunk.BF16.r1"]["value"], 0)
        self.assertGreater(figures["prefill.80"]["value"], 0)
        self.assertEqual(figures["tile_copies"]["value"], 1)
        self.assertEqual(figures["runner.graphs"]["value"], 1)
        self.assertGreater(figures["runner.step"]["value"], 0)
        for name in ("tiny.BF16.batch_1", "tiny.BF16.batch_4", "tiny.Q4_K.gap.in_flight_2", "tiny.Q4_K.gap.in_flight_1"):
            self.assertGreater(figures["engine." + name]["value"], 0)
        self.assertEqual(figures["engine.tiny.BF16.equal"]["ratio"], 1)
        self.assertEqual(figures["engine.tiny.Q4_K.gap.in_flight_2"]["limit"], 10)
        self.assertLess(figures["engine.tiny.Q4_K.gap.in_flight_2"]["value"], 60e6)  # no begin is before the end that it follows
        self.assertIn("value", figures["exactness.qkv.tokens_1"])
        for name in ("mma_s8", "wgmma_bf16", "l2.one_sm", "kernel.all_sms", "prologue.copy"):
            self.assertGreater(figures["limits." + name]["value"], 0)
        for name in ("attention.2x96.paged_to_contiguous", "prefix.3x2080", "handoff.to_host", "matmul.tflops.64"):
            self.assertGreater(figures[name]["ratio"] or figures[name]["value"], 0)
        self.assertEqual({file.name for file in out.iterdir()}, {"gpu_check.log", "result.json"})
        log = (out / "gpu_check.log").read_text()
        for part in PARTS:
            self.assertIn(f"== {part}: {wanted[part]}\n", log)
        self.assertIn("part.nccl", figures)
        for section, (kernel, other) in KERNELS.items():
            kernels = next(line for line in log.splitlines() if line.startswith(f"kernels of {section}: "))
            self.assertIn(kernel, kernels)
            self.assertNotIn(other, kernels)
        for line in ("\nlibcuda.so.1: ", "\nkernel: Linux", "\npython3: ", "\nCUDA device 0: emulated GPU"):
            self.assertIn(line, "\n" + log)
        for name in ("CudaRope", "mma s8", "wgmma f16", "mma and wgmma", "tiny:BF16", "tiny:Q4_K r1", "r1, real.gguf, second time",
                     "t1-sm90, models/tiny-bf16.gguf, first time", "chunk r1", "two ranks", "limits", "exactness",
                     "default KV pool on cuda-emulated"):
            self.assertRegex(log, rf"\n{name}: passed \(\d+ s\)\n")
        self.assertRegex(log, r"\n  equal: t1-sm90, models/tiny-bf16.gguf, blocks of 64\n")
        self.assertRegex(log, r"\n  equal: t1-sm90, models/tiny-bf16.gguf, f16 --steps-in-flight 2")
        self.assertRegex(log, r"\n  equal: r1, real.gguf, f16 --steps-in-flight 2")
        self.assertRegex(log, r"\n  equal: r1, real.gguf, blocks of 16\n")
        self.assertIn(f"\nmodel: {len(self.model)} bytes from 3 parts\n", log)
        self.assertRegex(log, r"\nmma.sync and wgmma bf16: 0 of [1-9]\d* results differ\n")
        for product in ("bf16", "f16", "wgmma bf16", "wgmma f16"):
            self.assertRegex(log, rf"\nconformance {product}, cancelling: 0 of [1-9]\d* results differ\n")

    def change_pack(self, name, change):
        """Copies the pack, calls change(its unpacked files), and returns the copy."""
        changed = self.scratch / name
        files = changed / "files"
        shutil.copytree(self.pack, changed)
        with tarfile.open(changed / "files.tar.gz") as archive:
            archive.extractall(files)
        change(files)
        subprocess.run(["tar", "-C", str(files), "-czf", str(changed / "files.tar.gz"), "."], check=True)
        return changed

    def plant(self, file, text):
        """Writes a program over a packed one."""
        file.write_text(text)
        file.chmod(0o755)

    def test_without_a_part_of_the_model_the_check_names_it_and_goes_on(self):
        """The part sanitizer is fast where there is no tool."""
        self.assertRegex(self.listing, rf"\n +{len(self.model) // 2 - 1} \S+/pack-model/part-2\n")
        changed = self.change_pack("in-parts", lambda files: None)
        parts = self.scratch / "in-parts-model"
        ended = run(changed / "gpu_check.sh", "sanitizer")
        self.assertIn(f"in {parts}, part-1 is missing, part-2 is missing, part-3 is missing\n", ended.stdout)
        shutil.copytree(self.scratch / "pack-model", parts)
        (parts / "part-3").write_bytes(b"damaged")
        (parts / "part-1").unlink()
        ended = run(changed / "gpu_check.sh", "sanitizer")
        self.assertIn(f"model: not run: in {parts}, part-1 is missing, part-3 is damaged\n", ended.stdout)
        self.assertEqual((ended.returncode, self.outcomes(ended.stdout)), (0, {"sanitizer": "not run"}))

    def test_parts_of_another_file_are_not_joined(self):
        def change(files):
            sums = (files / "model.parts").read_text().splitlines()
            (files / "model.parts").write_text("\n".join([sums[0], *reversed(sums[1:])]) + "\n")
        changed = self.change_pack("reversed", change)
        shutil.copytree(self.scratch / "pack-model", self.scratch / "reversed-model")
        ended = run(changed / "gpu_check.sh", "sanitizer")
        self.assertIn("model: not run: the parts are right, but the joined file has another checksum\n", ended.stdout)

    def test_a_pack_without_the_model_says_so(self):
        changed = self.change_pack("without-model", lambda files: (files / "model.parts").unlink())
        self.assertIn("model: the pack was made without it\n", run(changed / "gpu_check.sh", "sanitizer").stdout)

    def test_a_section_of_the_bench_that_fails_keeps_the_other_figures(self):
        def change(files):
            (files / "bin" / "real_bench").write_bytes((files / "bin" / "cuda_bench").read_bytes())
            (files / "bin" / "real_bench").chmod(0o755)
            self.plant(files / "bin" / "cuda_bench", f"""#!/bin/bash
                case "$*" in
                  *--describe* | *bandwidth*) exec "$(dirname "$0")/real_bench" "$@" ;;
                  *prefill*) echo "planted: the kernel fails" >&2; exit 134 ;;
                  *) echo '{{"bench":"cuda","conditions":[],"figures":[{{"name":"planted","value":1,"unit":"us","limit":null,"ratio":null}}],"seed":16}}' ;;
                esac
                """)
        ended = run(self.change_pack("failing-bench", change) / "gpu_check.sh", "bench", "peers")
        self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
        self.assertEqual(self.outcomes(ended.stdout), {"bench": "failed", "peers": "passed" if has_torch() else "not run"}, ended.stdout)
        self.assertIn("planted: the kernel fails", ended.stdout)
        self.assertIn("prefill: failed with exit code 134", ended.stdout)
        result = json.loads(ended.stdout.splitlines()[-1])
        names = {figure["name"] for figure in result["figures"]}
        self.assertLessEqual({"copy", "planted", "part.bench"}, names)

    def test_a_suite_that_hangs_hides_no_other(self):
        def change(files):
            (files / "bin" / "real_tests").write_bytes((files / "bin" / "cuda_tests").read_bytes())
            (files / "bin" / "real_tests").chmod(0o755)
            self.plant(files / "bin" / "cuda_tests", """#!/bin/bash
                case "$*" in
                  *CudaRope*) sleep 1000 ;;
                  *) exec "$(dirname "$0")/real_tests" "$@" ;;
                esac
                """)
            script = files / "gpu_check_parts.sh"
            script.write_text(script.read_text().replace("most=$((4 * most))", "most=$((most / 3))"))
        ended = run(self.change_pack("hanging", change) / "gpu_check.sh", "ops")
        self.assertEqual(self.outcomes(ended.stdout), {"ops": "failed"}, ended.stdout)
        self.assertRegex(ended.stdout, r"\nCudaRope: timed out \(\d+ s\)\n")
        self.assertRegex(ended.stdout, r"\nCudaCopies: passed \(\d+ s\)\n")
        self.assertIn("failed: CudaRope", ended.stdout)

    def test_compute_sanitizer_gets_a_command_that_runs(self):
        tools = self.scratch / "tools"
        tools.mkdir()
        self.plant(tools / "compute-sanitizer", """#!/bin/bash
            echo "compute-sanitizer $*" >> "$OUT/sanitizer.txt"
            while [[ $1 == --* ]]; do shift 2; done
            exec "$@"
            """)
        out = self.scratch / "sanitized"
        out.mkdir()
        ended = run(self.pack / "gpu_check.sh", "sanitizer", PATH=f"{tools}:{PATH}", OUT=str(out))
        self.assertEqual(self.outcomes(ended.stdout), {"sanitizer": "passed"}, ended.stdout)
        calls = (out / "sanitizer.txt").read_text().splitlines()
        self.assertEqual([re.search(r"--tool (\w+)", call)[1] for call in calls], ["memcheck", "initcheck", "racecheck", "synccheck"])
        for call in calls:
            self.assertIn("--report-api-errors no --tool", call)

    def test_the_libraries_of_the_machine_stay_on_the_path(self):
        """A driver may be found only by LD_LIBRARY_PATH."""
        def change(files):
            for program in ("cuda_tests", "baton", "cuda_bench"):
                self.plant(files / "bin" / program, """#!/bin/bash
                    echo "path=$LD_LIBRARY_PATH"
                    exit 3
                    """)
        ended = run(self.change_pack("path", change) / "gpu_check.sh", "nccl", "services", "bench", "model", LD_LIBRARY_PATH="/opt/driver:/opt/more")
        paths = re.findall(r"path=(\S+)", ended.stdout)
        self.assertGreater(len(paths), 3, ended.stdout)
        for path in paths:
            self.assertRegex(path, r"^/[^:]*/lib:/opt/driver:/opt/more:/usr/local/nvidia/lib64")
        self.assertIn("the device does not open", ended.stdout)

    def test_the_kernels_travel_once(self):
        folder = self.scratch / "with-kernels" / "bin"
        folder.mkdir(parents=True)
        for file in (pathlib.Path(build) / "bin").iterdir():
            if file.name in PROGRAMS or file.name.startswith("libbaton_"):
                (folder / file.name).symlink_to(file)
        for name in ("libbaton_cuda_kernels.so", "libbaton_cuda_test_kernels.so"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(pathlib.Path(build) / "bin" / "libbaton_emulated_nccl.so")  # any library
        to = self.scratch / "pack-with-kernels"
        packed = subprocess.run([SCRIPT, "--pack", "--build", folder.parent, "--to", to], capture_output=True, text=True,
                                env=os.environ | {"BATON_MODEL_DIR": "/no/such/folder"})
        self.assertEqual(packed.returncode, 0, packed.stdout + packed.stderr)
        self.assertIn("no parts of the model: /no/such/folder/SmolLM2-135M-Instruct.Q4_1.gguf is missing", packed.stdout)
        with tarfile.open(to / "files.tar.gz") as archive:
            link = archive.getmember("./bin/libbaton_cuda_kernels.so")
            self.assertTrue(link.issym())
            self.assertEqual(link.linkname, "libbaton_cuda_test_kernels.so")
            self.assertTrue(archive.getmember("./bin/libbaton_cuda_test_kernels.so").isfile())

    def test_without_nccl_its_part_is_not_run_and_says_why(self):
        changed = self.change_pack("no-nccl", lambda files: (files / "bin" / "libbaton_emulated_nccl.so").unlink())
        ended = run(changed / "gpu_check.sh", "nccl")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(self.outcomes(ended.stdout), {"nccl": "not run"}, ended.stdout)
        self.assertIn("not run: there is no library of NCCL: ", ended.stdout)
        self.assertIn("libbaton_emulated_nccl.so", ended.stdout)

    def test_a_failed_part_hides_no_other(self):
        model = (ROOT / "tests/testdata/models/tiny-q4_1.gguf").read_bytes()[:3000]
        damaged = self.change_pack("damaged", lambda files: (files / "models" / "tiny-q4_1.gguf").write_bytes(model))
        ended = run(damaged / "gpu_check.sh", "model", "conformance")
        self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
        self.assertEqual(self.outcomes(ended.stdout), {"model": "failed", "conformance": "passed"}, ended.stdout)
        # Every model is compared, and the log says what the failed one's program said.
        self.assertIn("DIFFERENT: r1, models/tiny-q4_1.gguf, blocks of 16", ended.stdout)
        self.assertIn("equal: t1-sm90, models/tiny-bf16.gguf, blocks of 64", ended.stdout)
        self.assertRegex(ended.stdout, r"the end of got.log:\n.*tiny-q4_1.gguf")

    def test_the_pack_lists_its_contents_and_holds_the_libraries(self):
        self.assertIn("bin/cuda_tests", self.listing)
        self.assertRegex(self.listing, r"lib/libstdc\+\+\.so")
        self.assertNotRegex(self.listing, r"lib/libc\.so")
        self.assertIn(" MiB, version ", self.listing)

    def test_an_unknown_part_is_refused_with_the_list(self):
        ended = run(self.pack / "gpu_check.sh", "modell")
        self.assertEqual(ended.returncode, 1)
        self.assertIn('there is no part "modell"; the parts are: conformance ops', ended.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    arguments, rest = parser.parse_known_args()
    build = os.path.abspath(arguments.build)
    unittest.main(argv=[sys.argv[0], *rest])
