// SPDX-License-Identifier: Apache-2.0
// oneDNN's primitives, by the sizes that they were made for. Private to
// ops/kernels.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <unordered_map>

namespace dtensor::kernels::cpu {

// oneDNN's primitive cache shares primitives between threads. The thread
// sanitizer reports this in version 2.6.3. TensorFlow disabled the cache from
// 2.6 until 2.7.1 because of memory corruption (its pull requests 57044 and
// 58269), and not everything that later versions' AMX kernels share is
// thread-safe (oneDNN issue 5393, about ukernels). Ranks are threads, so the
// cache is off.
inline void share_no_primitives() {
  [[maybe_unused]] static const bool off = [] {
    dnnl::set_primitive_cache_capacity(0);
    return true;
  }();
}

// Make one for each thread, because an Entry has memory objects, which hold the
// operands' addresses.
template <size_t N, class Entry>
class DnnlCache {
 public:
  using Key = std::array<int64_t, N>;
  DnnlCache() { share_no_primitives(); }

  // Returns the entry of this key, which make(engine) makes at its first use.
  // Null if oneDNN has no such primitive.
  template <class Make>
  Entry* find(const Key& key, const Make& make) {
    auto it = entries_.find(key);
    if (it == entries_.end()) {
      // Shapes rarely change, so dropping all entries is as good as any policy.
      if (entries_.size() >= kMost) entries_.clear();
      std::optional<Entry> entry;
      try {
        entry = make(engine_);
      } catch (const dnnl::error&) {
      }
      it = entries_.emplace(key, std::move(entry)).first;
    }
    return it->second ? &*it->second : nullptr;
  }

  // Returns false if the primitive fails. Calls the C function: the C++ one
  // builds a map of arguments in every call.
  template <size_t Args>
  bool execute(const dnnl::primitive& p, const dnnl_exec_arg_t (&args)[Args]) {
    return dnnl_primitive_execute(p.get(), stream_.get(), Args, args) ==
           dnnl_success;
  }

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t h = 0;
      for (int64_t x : key) {
        h = (h ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
      }
      return h;
    }
  };
  static constexpr size_t kMost = 1024;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<Key, std::optional<Entry>, Hash> entries_;
};

}  // namespace dtensor::kernels::cpu
