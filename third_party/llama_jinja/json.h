// In the place of llama.cpp's own header, whose class wraps this one.
#pragma once
#include <nlohmann/json.hpp>

using common_json = nlohmann::ordered_json;
