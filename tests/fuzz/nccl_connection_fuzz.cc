// libFuzzer target for connections over NCCL with a man in the middle. He drops, duplicates, swaps,
// cuts and changes frames (and repairs their CRCs), and inserts his own. Meanwhile transfers are
// cancelled, time passes, and the fake NCCL hangs, fails and dies. nccl_fuzz_pair.h lists the
// properties that must hold.
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/fuzz/nccl_fuzz_pair.h"
#include "tests/fuzz/seed_corpus.h"

namespace baton::nccl_fuzz {
namespace {

std::vector<FuzzSeed> Seeds() {
  const auto script = [](std::initializer_list<int> bytes) {
    return std::string(bytes.begin(), bytes.end());
  };
  return {
      {"delivered", script({kTransfer, 0, kSettle, 0, kTransfer, 0, kTransfer, 0, kSettle, 0})},
      {"one-by-one", script({kTransfer, 0, kForward, 0, kForward, 1, kForward, 1, kForward, 0,
                             kForward,  0, kWait,    0, kForward, 1, kForward, 0, kSettle,  0})},
      {"fails", script({kFault, 0, 0, 1, 0, kTransfer, 0, kSettle, 0, kTime, 0, 7, kTransfer, 0,
                        kSettle, 0})},
      {"receiver-dies", script({kFault, 0, 1, 2, 1, kTransfer, 0, kTransfer, 0, kSettle, 0})},
      {"late", script({kFault, 0,       0, 0,      0, kTransfer, 0, kSettle, 0,       kTime, 0,
                       11,     kSettle, 0, kFault, 0, 0,         0, 4,       kSettle, 0})},
      {"spoiled", script({kFault, 0, 0, 3, 0, kTransfer, 0, kSettle, 0})},
      {"cancelled", script({kFault, 0, 0, 0, 0, kTransfer, 0, kTransfer, 0, kSettle, 0,
                            kCancelReceive, 0, 0, kCancelSend, 0, 1, kSettle, 0})},
      {"no-offer", script({kTransfer, 0, kForward, 0, kForward, 1, kDrop, 1, kSettle, 0, kTime, 0,
                           11, kSettle, 0})},
      {"changed",
       script({kTransfer, 0, kForward, 0, kForward, 1, kForward, 1, kChange, 0, 3, 1, kSettle, 0})},
      {"own-landed",
       script({kTransfer, 0, kSettle, 0, kInsert, 1, 15, 8, 9, 0, 0, 0, 0, 0, 0, 0, kSettle, 0})},
      {"own-stop",
       script({kTransfer, 0, kSettle, 0, kInsert, 1, 16, 14,      1, 0,         0, 0,       0, 0, 0,
               0,         0, 1,       0, 0,       0, 0,  kSettle, 0, kTransfer, 0, kSettle, 0})},
      {"parts", script({kTransfer, 0, kPart, 0, 30, kPart, 0, 200, kSettle, 0, kInsertBytes, 0, 4,
                        66, 75, 86, 84, kSettle, 0})},
  };
}

}  // namespace
}  // namespace baton::nccl_fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  baton::WriteSeeds(*argc, *argv, baton::nccl_fuzz::Seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::nccl_fuzz::Pair().Play(baton::nccl_fuzz::Script(data, size));
  return 0;
}
