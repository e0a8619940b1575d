// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/architecture.h"

#include <gtest/gtest.h>

#include "dtensor/nn/models.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using dtensor::testing::error_of;

// A program's own row is added to the others, and references to those stay
// valid.
TEST(Architecture, AProgramAddsItsOwn) {
  const Architecture& llama = architecture("llama");
  const size_t before = architectures().size();
  Architecture own = llama;
  own.name = "own";
  own.class_name = "OwnForCausalLM";
  own.model_types = {"own"};
  own.act = Act::kGelu;
  add_architecture(own);
  EXPECT_EQ(architectures().size(), before + 1);
  EXPECT_EQ(&architecture("llama"), &llama);
  EXPECT_NE(architecture_names().find(" or own"), std::string::npos);
  const std::string dir = ::testing::TempDir() + "/own";
  const auto parameters = on_mesh<size_t>("tp=2", [&](const Mesh& m) {
    const auto model = make_model(
        {.name = "own", .layers = 1, .hidden = 8, .heads = 2, .vocab = 9}, m);
    save_pretrained(*model, dir);
    const auto back = from_pretrained(dir, m);
    EXPECT_EQ(back->config().name, "own");
    return back->parameters().size();
  });
  EXPECT_EQ(parameters, 12u);
}

TEST(Architecture, RowsThatCannotBe) {
  Architecture a = architecture("llama");
  const auto error = [&] { return error_of([&] { add_architecture(a); }); };
  EXPECT_EQ(error(),
            "[architecture] there is a \"llama\" already; give the new one "
            "another name");
  a.name = "other";
  EXPECT_EQ(error(),
            "[architecture] \"llama\" and \"other\" both read the files of "
            "class LlamaForCausalLM and type llama; give \"other\" another "
            "class or type");
  a.class_name = nullptr;
  EXPECT_EQ(error(),
            "[architecture] the architecture's name is \"other\", its "
            "class_name is null and the size of its model_types is 1; set all "
            "three");
  a.class_name = "Other";
  EXPECT_EQ(on_mesh<std::string>("dp=1", [&](const Mesh&) { return error(); }),
            "[architecture] architecture \"other\" is added inside run(); add "
            "it before");
}

}  // namespace
}  // namespace dtensor::nn
