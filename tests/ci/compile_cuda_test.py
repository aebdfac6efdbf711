#!/usr/bin/env python3
"""Tests what scripts/compile_cuda.sh asks of nvcc, with a stand-in for nvcc, that the CUDA build asks for the same architectures, and
that kernels without their tensor instructions, kernels that spill more registers than their limit, and kernels that touch memory before
they wait for earlier kernels, are named."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import early_accesses  # pylint: disable=wrong-import-position
import kernel_spills  # pylint: disable=wrong-import-position
import tensor_instructions  # pylint: disable=wrong-import-position

STAND_IN = """#!/usr/bin/env bash
[ "${SLOW-}" != "$(basename "${@: -9:1}")" ] || sleep 60
echo "$* append=${NVCC_APPEND_FLAGS-none} prepend=${NVCC_PREPEND_FLAGS-none}" >> "$CALLS"
cat <<END
ptxas info    : Compiling entry function 'baton_rms_norm' for 'sm_90a'
ptxas info    : Function properties for baton_rms_norm
    0 bytes stack frame, ${SPILLED-0} bytes spill stores, 0 bytes spill loads
${MORE-}
END
"""
# As ptxas of CUDA 13 prints it.
SERIAL = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register "
          "resources for the wgmma pipeline in the function 'baton_tensor_matmul_128x256_bf16'")


class Nvcc(unittest.TestCase):
    def calls(self, *arguments, **variables):
        """Returns the calls of nvcc. Sets `code` and `output` to those of the script."""
        with tempfile.TemporaryDirectory() as folder:
            calls = pathlib.Path(folder, "calls")
            nvcc = pathlib.Path(folder, "nvcc")
            nvcc.write_text(STAND_IN)
            nvcc.chmod(0o755)
            environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls),
                                        "NVCC_APPEND_FLAGS": "-use_fast_math", "NVCC_PREPEND_FLAGS": "-ftz=true"} | variables
            done = subprocess.run([ROOT / "scripts/compile_cuda.sh", *(arguments or ("kernels/cuda/rows.cu",))], env=environment, check=False,
                                  capture_output=True, text=True)
            self.code, self.output = done.returncode, done.stdout
            return calls.read_text().splitlines()

    def test_flags_of_the_environment_have_no_effect(self):
        calls = self.calls()
        self.assertTrue(calls)
        for call in calls:
            self.assertIn("append=none prepend=none", call)

    def test_a_kernel_that_spills_is_an_error(self):
        self.calls()
        self.assertEqual((self.code, self.output), (0, ""))
        self.calls(SPILLED="4")
        self.assertEqual((self.code, self.output), (1, "kernels/cuda/rows.cu: error: baton_rms_norm for sm_90a spills: 4 bytes of stores "
                                                       "and 0 of loads; limit 0 and 0\n"))

    def test_products_that_wait_for_each_other_are_an_error(self):
        self.calls(MORE=SERIAL)
        self.assertEqual((self.code, self.output), (1, f"kernels/cuda/rows.cu: {SERIAL}\n"))

    def test_files_that_are_left_for_lack_of_time_are_named(self):
        calls = self.calls("--seconds", "5", "kernels/cuda/rows.cu", "kernels/cuda/rotary.cu", "kernels/cuda/sample.cu", SLOW="rotary.cu")
        self.assertEqual((self.code, self.output),
                         (75, "not compiled for lack of time: kernels/cuda/rotary.cu kernels/cuda/sample.cu\n"))
        self.assertEqual(len(calls), 1)
        self.calls("--seconds", "5", "kernels/cuda/rows.cu", "kernels/cuda/rotary.cu", SLOW="rotary.cu", SPILLED="4")
        self.assertEqual(self.code, 1, "an error counts more")

    def test_a_machine_without_nvcc_is_told_from_one_where_all_is_right(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bash", "dirname"):
                pathlib.Path(folder, name).symlink_to(shutil.which(name))
            done = subprocess.run([ROOT / "scripts/compile_cuda.sh"], env={"PATH": folder, "CUDA_HOME": folder}, check=False,
                                  capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (75, "not compiled: there is no nvcc on this machine\n"))

    def test_ptxas_assembles_every_architecture_of_the_build(self):
        built = set(re.findall(r"arch=(compute_\w+)", (ROOT / "kernels/cuda/CMakeLists.txt").read_text()))
        self.assertIn("compute_90", built)
        assembled = {arch for call in self.calls() for arch in re.findall(r"arch=(compute_\w+),code=sm_", call)}
        self.assertEqual(assembled, built)


SPILLS = """
ptxas info    : Compiling entry function 'baton_a_64' for 'sm_80'
ptxas info    : Function properties for baton_a_64
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 168 registers
ptxas info    : Function properties for RoundsInASlowWay
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'baton_a_64' for 'sm_90a'
ptxas info    : Function properties for baton_a_64
    0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'baton_b' for 'sm_90a'
ptxas info    : Function properties for baton_b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


class KernelSpills(unittest.TestCase):
    def test_matrix_products_and_single_tokens_of_t1_may_not_spill(self):
        kernels = [kernel for source in (ROOT / "kernels/cuda").glob("*.cu")
                   for kernel in tensor_instructions.KERNEL.findall(source.read_text())]
        named = [kernel for kernel in kernels if re.match(r"baton_(gated_|tensor_)*matmul|baton_t1_(decode|warpgroups)", kernel)]
        self.assertGreater(len(named), 50)
        for kernel in named:
            for processor in ("sm_80", "sm_90", "sm_90a"):
                # Outside of the loop over tiles (docs/decisions/0058).
                once = re.fullmatch(r"baton_t1_warpgroups_b?f16_128", kernel) and processor != "sm_80"
                self.assertEqual(kernel_spills.limit_of(kernel, processor), (12, 20) if once else (0, 0), kernel)

    def errors(self, *limits):
        return [message.split(" spills")[0] for message, is_error in kernel_spills.judge(SPILLS, limits) if is_error]

    def test_without_a_limit_no_function_may_spill(self):
        self.assertEqual(self.errors(), ["baton_a_64 for sm_80", "RoundsInASlowWay for sm_80", "baton_a_64 for sm_90a"])

    def test_a_limit_is_for_a_processor_and_for_the_whole_name(self):
        self.assertEqual(self.errors((r"baton_a_\d+|Rounds\w+", (12, 8), (0, 0))), ["baton_a_64 for sm_90a"])
        self.assertEqual(self.errors((r"baton_a_\d+|Rounds\w+", (0, 0), (0, 4))), ["baton_a_64 for sm_80", "RoundsInASlowWay for sm_80"])
        self.assertEqual(self.errors((r"baton_a|Rounds", (12, 8), (0, 4))), self.errors())

    def test_one_byte_more_than_the_limit_is_an_error(self):
        self.assertIn("baton_a_64 for sm_80", self.errors((r"baton_a_\d+", (11, 8), (0, 0))))
        self.assertIn("baton_a_64 for sm_80", self.errors((r"baton_a_\d+", (12, 7), (0, 0))))

    def test_the_first_limit_that_fits_counts(self):
        limits = ((r"baton_a_64", (1, 2), (3, 4)), (r".*", (5, 6), (7, 8)))
        self.assertEqual([kernel_spills.limit_of(name, processor, limits) for name in ("baton_a_64", "baton_b")
                          for processor in ("sm_80", "sm_90", "sm_90a")], [(1, 2), (3, 4), (3, 4), (5, 6), (7, 8), (7, 8)])

    def test_spills_within_their_limit_are_told(self):
        self.assertEqual(list(kernel_spills.judge(SPILLS, ((r".*", (12, 8), (0, 4)),)))[0], (
            "baton_a_64 for sm_80 spills: 12 bytes of stores and 8 of loads; limit 12 and 8", False))


HGMMA_OF_REGISTERS, TILE_COPY = 0x00E0000894187DF0, 0x000000081A0075B4
HMMA, HGMMA, OTHER = 0x000000160C08723C, 0x03E00000041879F0, 0x0000000000007918  # first words of instructions
IMMA, LDMATRIX, COPY, BULK_COPY = 0x0000001C181C7237, 0x00000000170C783B, 0x072000000C077FAE, 0x00000008060083BA


def code(*words):
    return b"".join(struct.pack("<QQ", word, 0x000FE20000000000) for word in words)


# Instructions of nvcc 13, with both of their words.
WAIT, EXIT, EXIT_IF = (0x782E, 0xFE2 << 40), (0x794D, 0x1FEA0003800000), (0x094D, 0xFEA0003800000)
LOAD, STORE = (0x0000000602007981, 0xEA4000C1E1900), (0x0000000502007986, 0xFE2000C101906)
BULK_LOAD, PREFETCH = (0x00000008100073BA, 0x1E20008000006), (0x00000000040083BC, 0x1E20008000008)
NOTHING, CALL = (0x7918, 0xFE20000000000), (0x0000000000047944, 0xFEA0003C00000)


def branch(instructions, predicate=7):
    """A branch over so many instructions; less than 0: back."""
    offset = (16 * instructions >> 2)
    high = (offset >> 8 << 2) & ((1 << 50) - 1)
    return (0x947 | predicate << 12 | (offset & 0xFF) << 16 | (high & 0xFFFFFFFF) << 32, 0xFEA0003800000 | high >> 32)


class EarlyAccesses(unittest.TestCase):
    def problems(self, *instructions, allowed=frozenset()):
        return list(early_accesses.problems(b"".join(struct.pack("<QQ", *each) for each in instructions), allowed))

    def test_accesses_after_the_wait_are_right(self):
        self.assertEqual(self.problems(NOTHING, PREFETCH, WAIT, LOAD, STORE, BULK_LOAD, EXIT), [])

    def test_an_access_before_the_wait_is_named(self):
        self.assertEqual(self.problems(NOTHING, LOAD, WAIT, STORE, EXIT), ["LDG at 0x10 before the wait for earlier kernels"])
        self.assertEqual(self.problems(STORE, WAIT, EXIT), ["STG at 0x0 before the wait for earlier kernels"])
        self.assertEqual(self.problems(BULK_LOAD, WAIT, EXIT), ["UBLKCP at 0x0 before the wait for earlier kernels"])
        self.assertEqual(self.problems(BULK_LOAD, WAIT, EXIT, allowed={"UBLKCP"}), [])
        self.assertEqual(self.problems(CALL, WAIT, EXIT), ["CALL at 0x0 before the wait for earlier kernels"])

    def test_a_thread_that_ends_without_the_wait_is_named(self):
        self.assertEqual(self.problems(NOTHING, EXIT), ["a thread can end at 0x10 without the wait for earlier kernels"])
        self.assertEqual(self.problems(EXIT_IF, WAIT, EXIT), ["a thread can end at 0x0 without the wait for earlier kernels"])
        self.assertEqual(self.problems((WAIT[0] & ~0x7000, WAIT[1]), EXIT), [
            "a thread can end at 0x10 without the wait for earlier kernels"], "the wait has a condition")

    def test_every_path_is_followed(self):
        over_the_wait = "LDG at 0x20 before the wait for earlier kernels"
        self.assertEqual(self.problems(branch(1, predicate=0), WAIT, LOAD, WAIT, EXIT), [over_the_wait])
        self.assertEqual(self.problems(branch(1), WAIT, LOAD, WAIT, EXIT), [over_the_wait])
        self.assertEqual(self.problems(branch(1), LOAD, WAIT, EXIT), [], "no path leads to the load")
        self.assertEqual(self.problems(branch(2), LOAD, WAIT, WAIT, branch(-4), EXIT), [])
        self.assertEqual(self.problems(branch(2), LOAD, WAIT, branch(-3), EXIT), ["LDG at 0x10 before the wait for earlier kernels"])
        self.assertEqual(self.problems(*[branch(300)] + 300 * [LOAD] + [WAIT, EXIT]), [])

    def test_only_named_kernels_may_read_constants_before_the_wait(self):
        source = ('extern "C" __global__ void baton_tensor_matmul_few_f16(P p) {}\n'
                  'extern "C" __global__ void baton_tensor_matmul_sm80_few_f16(P p) {}\n'
                  'extern "C" __global__ void baton_rope(P p) {}\n')
        early = b"".join(struct.pack("<QQ", *each) for each in (BULK_LOAD, WAIT, EXIT))
        self.assertEqual(list(early_accesses.errors(source, {
            "baton_tensor_matmul_few_f16": early, "baton_tensor_matmul_sm80_few_f16": early})), [
                "baton_tensor_matmul_sm80_few_f16: UBLKCP at 0x0 before the wait for earlier kernels", "baton_rope: no machine code for sm_90a"])


class TensorInstructions(unittest.TestCase):
    SOURCE = """
extern "C" __global__ void __launch_bounds__(kTile64x64.threads(), 2)
    baton_tensor_matmul_sm80_64x64_bf16(const __grid_constant__ TensorMatMulParams p) {}
extern "C" __global__ void baton_tensor_matmul_128x256_f16(const __grid_constant__ TensorMatMulParams p) {}
extern "C" __global__ void baton_rms_norm(const __grid_constant__ RmsNormParams p) {}
"""
    WARPGROUPS = 'extern "C" __global__ void baton_t1_warpgroups_f16_64(const __grid_constant__ TensorCoreAttentionParams p) {}'

    def errors(self, sm_80, sm_90a):
        return list(tensor_instructions.errors(self.SOURCE, {
            "sm_80": {"baton_tensor_matmul_sm80_64x64_bf16": sm_80}, "sm_90a": {"baton_tensor_matmul_128x256_f16": sm_90a}}))

    def test_attention_of_warpgroups_has_their_products_and_tile_copies(self):
        def errors(*words):
            return list(tensor_instructions.errors(self.WARPGROUPS, {"sm_90a": {"baton_t1_warpgroups_f16_64": code(*words)}}))
        self.assertEqual(errors(OTHER, HGMMA_OF_REGISTERS, TILE_COPY), [])
        self.assertEqual(errors(TILE_COPY), ["baton_t1_warpgroups_f16_64: no HGMMA for sm_90a"])
        self.assertEqual(errors(HGMMA_OF_REGISTERS), ["baton_t1_warpgroups_f16_64: no UTMALDG for sm_90a"])

    def test_integer_products_have_theirs_on_both_processors(self):
        source = """
extern "C" __global__ void baton_matmul_few_8_q8_0(const __grid_constant__ MatMulParams p) {}
extern "C" __global__ void baton_gated_matmul_q4_k(const __grid_constant__ GatedMatMulParams p) {}
"""
        def errors(few, gated):
            kernels = {"baton_matmul_few_8_q8_0": code(*few), "baton_gated_matmul_q4_k": code(*gated)}
            return list(tensor_instructions.errors(source, {"sm_80": kernels, "sm_90a": kernels}))
        self.assertEqual(errors((IMMA, COPY), (IMMA, COPY)), [])
        self.assertEqual(errors((HMMA, COPY), (OTHER, COPY)), [f"{kernel}: no IMMA for {processor}" for kernel in (
            "baton_matmul_few_8_q8_0", "baton_gated_matmul_q4_k") for processor in ("sm_80", "sm_90a")])
        self.assertEqual(errors((IMMA,), (IMMA,)), [f"{kernel}: no LDGSTS for {processor}" for kernel in (
            "baton_matmul_few_8_q8_0", "baton_gated_matmul_q4_k") for processor in ("sm_80", "sm_90a")])

    def test_a_rule_for_each_kernel_of_tensor_cores_is_there(self):
        for source in (ROOT / "kernels/cuda").glob("*.cu"):
            for kernel in tensor_instructions.KERNEL.findall(source.read_text()):
                if re.match(r"baton_(gated_|tensor_)*matmul_(?!float)|baton_t1_", kernel):
                    self.assertTrue(any(re.fullmatch(pattern, kernel) for pattern, _, _ in tensor_instructions.RULES), kernel)

    def test_kernels_with_their_instructions_are_right(self):
        self.assertEqual(self.errors(code(OTHER, HMMA, LDMATRIX, COPY), code(HGMMA, OTHER, BULK_COPY)), [])

    def test_a_kernel_without_its_instruction_is_named(self):
        self.assertEqual(self.errors(code(OTHER, HGMMA, LDMATRIX, COPY), code(HMMA, BULK_COPY)), [
            "baton_tensor_matmul_sm80_64x64_bf16: no HMMA for sm_80", "baton_tensor_matmul_128x256_f16: no HGMMA for sm_90a"])
        self.assertEqual(self.errors(code(HMMA), code(HGMMA)), [
            "baton_tensor_matmul_sm80_64x64_bf16: no LDGSTS for sm_80", "baton_tensor_matmul_sm80_64x64_bf16: no LDSM for sm_80",
            "baton_tensor_matmul_128x256_f16: no UBLKCP for sm_90a"])

    def test_a_kernel_that_is_missing_is_named(self):
        self.assertEqual(list(tensor_instructions.errors(self.SOURCE, {"sm_80": {}})), [
            "baton_tensor_matmul_sm80_64x64_bf16: no machine code for sm_80",
            "baton_tensor_matmul_128x256_f16: no machine code for sm_90a"])

    def test_the_name_of_a_cubin_says_its_processor(self):
        for name in ("kept/few.tokens.compute_90a.cubin", "rows.sm_90a.cubin"):
            self.assertEqual(tensor_instructions.processor_of(pathlib.Path(name)), "sm_90a")

    def test_the_code_of_a_kernel_is_found_in_a_cubin(self):
        names = b"\0.shstrtab\0.text.baton_a\0.text.baton_b\0"
        first, second = code(HMMA), code(OTHER, OTHER)
        contents = [names, first, second]
        offsets = [64, 64 + len(names), 64 + len(names) + len(first)]
        table_at = offsets[-1] + len(second)
        header = bytearray(64)
        struct.pack_into("<Q", header, 40, table_at)
        struct.pack_into("<HHH", header, 58, 64, 3, 0)
        sections = b"".join(tensor_instructions.SECTION.pack(names.index(name), 1, 0, 0, offset, len(content), 0, 0, 1, 0)
                            for name, offset, content in zip((b".shstrtab", b".text.baton_a", b".text.baton_b"), offsets, contents))
        cubin = bytes(header) + b"".join(contents) + sections
        self.assertEqual(tensor_instructions.machine_code(cubin), {"baton_a": first, "baton_b": second})


class Constants(unittest.TestCase):
    def test_only_readers_of_weights_use_the_read_only_cache(self):
        """Other memory is written while its reader has begun (kernels/cuda/kernel_order.cuh), and the read-only cache need not notice."""
        found = {path.name for folder in ("kernels/cuda", "bench") for path in (ROOT / folder).glob("*.cu*")
                 if re.search(r"__ldg\(|__restrict__", path.read_text())}
        self.assertEqual(found, {"embed_tokens.cu", "weight_fragments.cuh"})


if __name__ == "__main__":
    unittest.main()
