// CHECK-like macros, kept in release builds. For bugs only: untrusted input never reaches one.
#pragma once

#include <glog/logging.h>
