#include "dtensor/runtime/device/running_op.h"

namespace dtensor {
namespace {
thread_local const std::string_view* kept = nullptr;
}  // namespace

std::string_view running_op() { return kept ? *kept : std::string_view(); }

void keep_running_op(const std::string_view* name) { kept = name; }

}  // namespace dtensor
