// CHECK macros that stay active in release builds. For bugs only: untrusted input must never reach
// a CHECK.
#pragma once

#include <glog/logging.h>
