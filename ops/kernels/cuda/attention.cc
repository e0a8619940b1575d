// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cuda/attention.h"

#if !__has_include(<cudnn_frontend.h>)

namespace dtensor::kernels::cuda {

bool cudnn_attention(Stream, const AttentionForward&) { return false; }
bool cudnn_attention(Stream, const AttentionBackward&) { return false; }
std::string cudnn_attention_library() {
  return "no cuDNN: built without cudnn_frontend.h";
}

}  // namespace dtensor::kernels::cuda

#else

// cudnn-frontend would otherwise include a JSON library, for saving graphs.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cuda_runtime.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/ops/kernels/cuda/attention_calls.h"
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
namespace api = cudnn_frontend::graph;
using dtensor::cuda::check;
using dtensor::cuda::enter;

constexpr const char* kWhere = "attention";

// The most graphs that a thread caches per device. A model needs a few.
constexpr size_t kMostGraphs = 256;

// A tensor's id in a graph.
constexpr int64_t id(int operand) { return operand + 1; }
constexpr int64_t kLse = id(AttentionGraph::kNumOperands);

fe::DataType_t type_of(DType t) {
  return t == DType::kBF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

[[noreturn]] void fail_with(std::string_view words, const AttentionGraph& g) {
  fail(kWhere,
       "cuDNN failed: {}; set CUDNN_LOGLEVEL_DBG=2 and "
       "CUDNN_LOGDEST_DBG=stdout to see more about the call (the {} has type "
       "{}, q [{}, {}, {}, {}] and k [{}, {}, {}, {}])",
       words, g.backward ? "gradient" : "attention", name(g.type), g.b, g.hq,
       g.s, g.d, g.b, g.hkv, g.t, g.d);
}

void check_cudnn(cudnnStatus_t status, const AttentionGraph& g) {
  if (status != CUDNN_STATUS_SUCCESS) fail_with(cudnnGetErrorString(status), g);
}

struct GraphHash {
  size_t operator()(const AttentionGraph& g) const {
    uint64_t h = hash_mix(static_cast<uint64_t>(g.type) << 16 |
                              static_cast<uint64_t>(g.deterministic) << 9 |
                              static_cast<uint64_t>(g.backward) << 8 |
                              static_cast<uint64_t>(g.diagonal),
                          std::bit_cast<uint32_t>(g.scale));
    for (int64_t n : {g.b, g.hq, g.hkv, g.s, g.t, g.d})
      h = hash_mix(h, static_cast<uint64_t>(n));
    for (const auto& strides : g.strides)
      for (int64_t n : strides) h = hash_mix(h, static_cast<uint64_t>(n));
    return h;
  }
};

using GraphPtr = std::shared_ptr<api::Graph>;

// A compiled graph; null if cuDNN has no kernel for it.
struct Built {
  GraphPtr graph;
  int64_t scratch = 0;
  bool captured = false;
};

// While this object lives, its thread may make CUDA calls that are otherwise
// forbidden while any stream of the process is captured. The calls must not
// submit work to such a stream.
class NotCaptured {
 public:
  NotCaptured() { check(cudaThreadExchangeStreamCaptureMode(&mode_), kWhere); }
  ~NotCaptured() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  NotCaptured(const NotCaptured&) = delete;
  NotCaptured& operator=(const NotCaptured&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void describe(api::Tensor_attributes& x, const AttentionGraph& g, int operand) {
  const bool of_kv = operand == g.kK || operand == g.kV || operand == g.kDK ||
                     operand == g.kDV;
  const int64_t* s = g.strides[operand];
  x.set_uid(id(operand))
      .set_dim({g.b, of_kv ? g.hkv : g.hq, of_kv ? g.t : g.s, g.d})
      .set_stride({s[0], s[1], s[2], s[3]});
}
void describe_lse(api::Tensor_attributes& x, const AttentionGraph& g) {
  x.set_uid(kLse)
      .set_dim({g.b, g.hq, g.s, 1})
      .set_stride({g.hq * g.s, g.s, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

// The attributes common to both passes.
template <class A>
A attributes(const AttentionGraph& g) {
  A a;
  a.set_name(kWhere);
  a.set_attn_scale(g.scale);
  if (g.diagonal != Diagonal::kNone) {
    a.set_diagonal_alignment(g.diagonal == Diagonal::kTopLeft
                                 ? fe::DiagonalAlignment_t::TOP_LEFT
                                 : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    a.set_diagonal_band_right_bound(0);
  }
  return a;
}

Built build(cudnnHandle_t handle, const AttentionGraph& g) {
  const NotCaptured apart;
  auto graph = std::make_shared<api::Graph>();
  graph->set_io_data_type(type_of(g.type))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto input = [&](int operand) {
    api::Tensor_attributes x;
    describe(x, g, operand);
    return graph->tensor(x);
  };
  const auto output = [&](api::Tensor_attributes& x, int operand) {
    describe(x.set_output(true), g, operand);
  };
  const auto q = input(g.kQ), k = input(g.kK), v = input(g.kV);
  if (g.backward) {
    api::Tensor_attributes lse;
    describe_lse(lse, g);
    const auto [dq, dk, dv] = graph->sdpa_backward(
        q, k, v, input(g.kOut), input(g.kDOut), graph->tensor(lse),
        attributes<api::SDPA_backward_attributes>(g)
            .set_deterministic_algorithm(g.deterministic));
    output(*dq, g.kDQ);
    output(*dk, g.kDK);
    output(*dv, g.kDV);
  } else {
    const auto [out, lse] = graph->sdpa(
        q, k, v, attributes<api::SDPA_attributes>(g).set_generate_stats(true));
    output(*out, g.kOut);
    describe_lse(lse->set_output(true), g);
  }

  Built built;
  fe::error_t e = graph->build(handle, {fe::HeurMode_t::A});
  if (e.is_good()) e = graph->get_workspace_size(built.scratch);
  if (e.is_good())
    built.graph = std::move(graph);
  else if (e.get_code() != fe::error_code_t::GRAPH_NOT_SUPPORTED &&
           !says_not_supported(e.get_message()))
    fail_with(e.get_message(), g);
  return built;
}

// cuDNN's state for a device. One thread at a time may use it, because cuDNN's
// plans are not thread-safe.
class Session {
 public:
  Session() {
    int device = 0, compute = 0;
    check(cudaGetDevice(&device), kWhere);
    check(cudaDeviceGetAttribute(&compute, cudaDevAttrComputeCapabilityMajor,
                                 device),
          kWhere);
    cudnn_ = {static_cast<int64_t>(cudnnGetVersion()), compute};
  }

  Cudnn cudnn() const {
    return {cudnn_.version, cudnn_.compute, options.load().deterministic};
  }

  // The handle, set to submit work to the stream.
  cudnnHandle_t handle(cudaStream_t stream, const AttentionGraph& g) {
    if (!handle_) {
      const NotCaptured apart;
      check_cudnn(cudnnCreate(&handle_), g);
    }
    check_cudnn(cudnnSetStream(handle_, stream), g);
    return handle_;
  }

  const Built& built(cudaStream_t stream, const AttentionGraph& g) {
    Built* found = graphs_.find(g);
    if (!found) found = &graphs_.insert(g, build(handle(stream, g), g));
    if (found->captured || !found->graph) return *found;
    if (dtensor::cuda::captured(stream)) {
      found->captured = true;
      captured_.push_back(found->graph);
    }
    return *found;
  }

 private:
  Cudnn cudnn_;
  cudnnHandle_t handle_ = nullptr;
  BoundedCache<AttentionGraph, Built, GraphHash> graphs_{"attention graphs",
                                                         kMostGraphs};
  // Keeps captured graphs alive: their kernels run again in every replay.
  std::vector<GraphPtr> captured_;
};

using SessionPtr = std::unique_ptr<Session>;

// Sessions that no thread uses now. They outlive threads and are reused,
// because building a graph takes long.
class Pool {
 public:
  static Pool& instance() {
    static auto* const pool = new Pool;
    return *pool;
  }
  SessionPtr take(int device) {
    const std::lock_guard lock(mutex_);
    const auto at = free_.find(device);
    if (at == free_.end()) return std::make_unique<Session>();
    return std::move(free_.extract(at).mapped());
  }
  void give(int device, SessionPtr session) {
    const std::lock_guard lock(mutex_);
    free_.emplace(device, std::move(session));
  }

 private:
  std::mutex mutex_;
  std::multimap<int, SessionPtr> free_;
};

// This thread's session for its device.
Session& session() {
  struct Mine {
    ~Mine() {
      for (auto& [device, session] : of)
        Pool::instance().give(device, std::move(session));
    }
    std::map<int, SessionPtr> of;
  };
  thread_local Mine mine;
  int device = 0;
  check(cudaGetDevice(&device), kWhere);
  auto& session = mine.of[device];
  if (!session) session = Pool::instance().take(device);
  return *session;
}

// Scratch memory for the work that is submitted to the stream while this object
// lives.
class Scratch {
 public:
  Scratch(cudaStream_t stream, int64_t bytes) : stream_(stream) {
    if (bytes > 0) data_ = dtensor::cuda::allocate_scratch(stream, bytes);
  }
  ~Scratch() {
    if (data_) dtensor::cuda::release(data_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
};

// The address of an operand's batch b and head h.
template <class P>
void* begin(const Heads<P>& x, DType t, int64_t b, int64_t h) {
  return const_cast<char*>(static_cast<const char*>(x.data)) +
         (b * x.strides[0] + h * x.strides[1]) * size_of(t);
}

// Clears the gradient of k or v for keys that no query attends to.
void clear_unseen(cudaStream_t stream, DType type, const Attention& a,
                  int64_t from, const HeadsOut& dx) {
  // Heads that are contiguous in memory are cleared together.
  const auto& strides = dx.strides;
  const bool rows = strides[1] == a.d;
  const int64_t heads = rows ? 1 : a.hkv, width = rows ? a.hkv * a.d : a.d;
  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t h = 0; h < heads; ++h)
      check(cudaMemset2DAsync(static_cast<char*>(begin(dx, type, b, h)) +
                                  from * strides[2] * size_of(type),
                              static_cast<size_t>(strides[2] * size_of(type)),
                              0, static_cast<size_t>(width * size_of(type)),
                              static_cast<size_t>(a.t - from), stream),
            kWhere);
}

// Runs the graph for all batches and heads; false if cuDNN has no kernel for
// it.
bool run(cudaStream_t stream, Session& session, const AttentionGraph& g,
         const AttentionBackward& grad) {
  const Attention& a = grad.of;
  const Built& built = session.built(stream, g);
  if (!built.graph) {
    declined.count(g.backward ? "attention's gradient" : "attention");
    return false;
  }
  const cudnnHandle_t handle = session.handle(stream, g);
  const Scratch scratch(stream, built.scratch);
  for (int64_t b = 0; b < a.b; b += g.b)
    for (int64_t h = 0; h < a.hkv; h += g.hkv) {
      const int64_t hq = h * (a.hq / a.hkv);
      std::unordered_map<int64_t, void*> data = {
          {id(g.kQ), begin(a.q, g.type, b, hq)},
          {id(g.kK), begin(a.k, g.type, b, h)},
          {id(g.kV), begin(a.v, g.type, b, h)},
          {id(g.kOut), begin(grad.out, g.type, b, hq)},
          {kLse, begin(HeadsIn{grad.lse, {a.hq * a.s, a.s, 1, 1}}, DType::kF32,
                       b, hq)},
      };
      if (g.backward) {
        data[id(g.kDOut)] = begin(grad.dout, g.type, b, hq);
        data[id(g.kDQ)] = begin(grad.dq, g.type, b, hq);
        data[id(g.kDK)] = begin(grad.dk, g.type, b, h);
        data[id(g.kDV)] = begin(grad.dv, g.type, b, h);
      }
      fe::error_t e = built.graph->execute(handle, data, scratch.data());
      if (e.is_bad()) fail_with(e.get_message(), g);
    }
  if (g.backward && g.t < a.t) {
    clear_unseen(stream, g.type, a, g.t, grad.dk);
    clear_unseen(stream, g.type, a, g.t, grad.dv);
  }
  return true;
}

}  // namespace

bool cudnn_attention(Stream s, const AttentionForward& a) {
  const cudaStream_t stream = enter(s);
  Session& mine = session();
  const auto g = attention_graph(mine.cudnn(), a);
  return g &&
         run(stream, mine, *g,
             {.of = a.of, .out = {a.out.data, a.out.strides}, .lse = a.lse});
}

bool cudnn_attention(Stream s, const AttentionBackward& a) {
  const cudaStream_t stream = enter(s);
  Session& mine = session();
  const auto g = attention_graph(mine.cudnn(), a);
  return g && run(stream, mine, *g, a);
}

std::string cudnn_attention_library() {
  const size_t v = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}, cudnn-frontend {}.{}.{}", v / 10000,
                     v / 100 % 100, v % 100, CUDNN_FRONTEND_MAJOR_VERSION,
                     CUDNN_FRONTEND_MINOR_VERSION,
                     CUDNN_FRONTEND_PATCH_VERSION);
}

}  // namespace dtensor::kernels::cuda

#endif
