// The devices of a tensor-parallel group, and the collectives between them.
#pragma once

#include <memory>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/device.h"

namespace baton {

// One of each for every rank, in the order of the ranks. A communicator outlives the streams that
// run its collectives.
struct DeviceGroup {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Communicator>> communicators;
  // The ops of every device can use memory of the first one.
  bool reach_first = false;
};

}  // namespace baton
