// The streams of this program. What gives work to one needs launch.cuh alone.
#pragma once
#include <string_view>

#include "dtensor/device/device.h"

namespace dtensor::cuda {

// Where the program says which operator runs; before all else.
void set_running_op(std::string_view (*)());

// The calling thread's device from now on.
void use(int device);

// Another one, for ever.
Stream open_stream(int device);

// The host has waited for what the stream was given.
void waited(Stream);

}  // namespace dtensor::cuda
