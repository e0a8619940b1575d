// The training loop's body, where the program shows too little of it.
#include "examples/trainer.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>

#include "dtensor/runtime/runtime.h"
#include "tests/testing.h"

namespace dtensor::examples {
namespace {

using testing::error_of;

TrainConfig tiny(int64_t zero) {
  TrainConfig c;
  c.model.layers = 1;
  c.model.hidden = 12;
  c.model.heads = 3;
  c.model.seq = 8;
  c.batch = 4;
  c.steps = 4;
  c.zero = zero;
  return c;
}

// One bit of one copy, on one rank of three.
TEST(Trainer, CopiesThatDifferAreFound) {
  for (const int64_t zero : {0, 1}) {
    std::mutex mutex;
    std::set<std::string> errors;
    run(3, [&](Runtime& rt) {
      TrainConfig config = tiny(zero);
      const Mesh mesh = rt.mesh({{"dp", 3}});
      config.validate(mesh);
      Trainer trainer(config, mesh);
      trainer.step(0, TextData::licences());
      EXPECT_EQ(error_of([&] { trainer.check_copies(); }), "no error");
      const DistTensor p = trainer.model().parameter("transformer.ln_f.weight");
      if (rt.rank() == 1) p.local().mutable_ptr<float>()[5] += 1e-6f;
      const std::string e = error_of([&] { trainer.check_copies(); });
      std::lock_guard lock(mutex);
      errors.insert(e);
    });
    ASSERT_EQ(errors.size(), 1u) << zero;  // the same sentence on every rank
    EXPECT_NE(errors.begin()->find("the copies of transformer.ln_f.weight"),
              std::string::npos)
        << *errors.begin();
    EXPECT_NE(errors.begin()->find("differ: rank 1 "), std::string::npos)
        << *errors.begin();
  }
}

}  // namespace
}  // namespace dtensor::examples
