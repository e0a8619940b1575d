// SPDX-License-Identifier: Apache-2.0
// Checkpoints that somebody damaged, by accident or on purpose.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "dtensor/io/checksum.h"
#include "tests/dtensor/io/checkpoint_testing.h"
#include "tests/nothrow_new.h"

// The bytes of memory in use, and their maximum.
static std::atomic<int64_t> in_use{0}, most_in_use{0};

void* operator new(size_t bytes) {
  void* p = std::malloc(bytes);
  if (!p) throw std::bad_alloc();
  const int64_t now = in_use += static_cast<int64_t>(malloc_usable_size(p));
  int64_t most = most_in_use;
  while (most < now && !most_in_use.compare_exchange_weak(most, now)) {
  }
  return p;
}
void operator delete(void* p) noexcept {
  if (p) in_use -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }

namespace dtensor {
namespace {

using namespace testing;

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = {
      {"matrix", DType::kF32, {9, 6}, "S0,S1"},
      {"copied", DType::kBF16, {5, 3}, "R,R"},
      {"scalar", DType::kI64, {}, "R,R"}};
  return all;
}

class Damage : public ::testing::Test {
 protected:
  Damage() : dir_("damage"), path_(dir_ / "step-00000001") {
    const Mesh mesh = Mesh::parse("a=2,b=2");
    run(4, [&](Runtime&) {
      std::vector<NamedTensor> tensors;
      for (const Sample& s : samples())
        tensors.push_back({s.name, s.on(mesh, s.layout, 1)});
      save_checkpoint(dir_.path(), 1, tensors,
                      {{"seed", uint64_t{5}}, {"text", std::string("t")}});
    });
    index_ = text_of(path_ + "/index.json");
  }

  // Returns what both ranks throw when they read the whole checkpoint.
  std::string error() const {
    const Mesh mesh = Mesh::parse("a=2");
    const auto errors = errors_on(of_ranks(2), [&](Runtime&) {
      const CheckpointReader saved(path_);
      std::vector<CheckpointRequest> requests;
      for (const TensorInfo& t : saved.tensors())
        requests.push_back({t.name, mesh, t.shape.empty() ? "R" : "S0"});
      saved.read(requests);
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  }

  void expect_every_byte_counts() const;
  // Returns what opening the checkpoint throws. Needs no run.
  std::string error_of_opening() const {
    return error_of([&] { CheckpointReader saved(path_); });
  }

  // Writes an index: `rest`, after a first line with its size and checksum.
  void write_rest(const std::string& rest) const {
    const int64_t bytes = std::ssize(rest);
    write_text(
        path_ + "/index.json",
        fmt::format(R"([{{"format":"dtensor checkpoint","version":2,)"
                    R"("bytes":{},"xxh3":"{}"}})"
                    "\n{}",
                    bytes, checksum_text(checksum(rest.data(), bytes)), rest));
  }
  // Writes an index with these objects, one per line.
  void write_lines(const std::string& objects) const {
    std::string rest;
    for (size_t from = 0, to = 0; from < objects.size(); from = to) {
      to = std::min(objects.find('\n', from), objects.size() - 1) + 1;
      rest += ',' + objects.substr(from, to - from);
    }
    write_rest(rest + "]\n");
  }
  // The saved index's objects after the first, one per line.
  std::string lines() const {
    std::istringstream text(index_.substr(index_.find('\n') + 1));
    std::string objects;
    for (std::string line; std::getline(text, line);)
      if (line != "]") objects += line.substr(1) + '\n';
    return objects;
  }
  // The object of a rank's file without a header.
  static std::string file(int64_t rank, int64_t bytes) {
    return fmt::format(R"({{"rank":{},"header":0,"bytes":{},"xxh3":"{}"}})"
                       "\n",
                       rank, bytes, checksum_text(checksum("", 0)));
  }
  // Returns `text` with the first `from` replaced.
  static std::string edited(std::string text, const std::string& from,
                            const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return at == text.npos ? text : text.replace(at, from.size(), to);
  }
  std::string line_with(const std::string& part) const {
    const size_t at = index_.find(part);
    EXPECT_NE(at, index_.npos) << part;
    const size_t from = index_.rfind('\n', at) + 2;  // after the comma
    return index_.substr(from, index_.find('\n', at) + 1 - from);
  }

  Folder dir_;
  std::string path_, index_;
};

void expect_has(const std::string& text,
                const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), text.npos) << part << " is not in: " << text;
}

TEST_F(Damage, NoneAtFirst) {
  EXPECT_EQ(error(), "no error");
  write_lines(lines());
  EXPECT_EQ(text_of(path_ + "/index.json"), index_);
}

// Changes every byte of every file, cuts every file at every length, and
// appends a byte. All of it must be noticed.
void Damage::expect_every_byte_counts() const {
  for (const std::string& name : names_in(path_)) {
    const std::string file = path_ + "/" + name, good = text_of(file);
    const bool is_index = name.starts_with("index");
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      write_text(file, bad);
      expect_has(is_index ? error_of_opening() : error(), {"checkpoint", name});
      if (HasFailure()) FAIL() << "byte " << i;
    }
    for (size_t n = 0; n < good.size(); ++n) {
      write_text(file, good.substr(0, n));
      expect_has(error_of_opening(), {"checkpoint", name});
      if (HasFailure()) FAIL() << "length " << n;
    }
    for (const char* more : {"\n", "x", "\0"}) {
      write_text(file, good + std::string(more, 1));
      expect_has(error_of_opening(), {"checkpoint", name});
    }
    write_text(file, good);
  }
  EXPECT_EQ(error(), "no error");
}

TEST_F(Damage, EveryByteCounts) { expect_every_byte_counts(); }

// A checkpoint of the same tensors, which the library wrote before it had
// index.json.
TEST_F(Damage, OfVersion1) {
  path_ = dir_ / "version1";
  fs::copy("tests/dtensor/io/data/version1", path_);
  fs::permissions(path_, fs::perms::owner_all);
  for (const std::string& name : names_in(path_)) {
    const fs::path file = fs::path(path_) / name;
    const std::string text = text_of(file.string());
    fs::remove(file);  // it may be a link to a file that is read-only
    write_text(file.string(), text);
  }
  EXPECT_EQ(names_in(path_)[0], "index");
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    const CheckpointReader saved(path_);
    EXPECT_EQ(saved.step(), 1);
    EXPECT_EQ(saved.values(), (CheckpointValues{{"seed", uint64_t{5}},
                                                {"text", std::string("t")}}));
    for (const Sample& s : samples()) {
      const char* layout = s.shape.empty() ? "R" : "S0";
      expect_is(saved.read(s.name, mesh, layout), s, layout, 1);
    }
  });
  expect_every_byte_counts();
}

// The error has the file, the tensor, the box and both checksums.
TEST_F(Damage, TheErrorSaysWhere) {
  const std::string line = line_with("\"box\":[0,0]");
  const std::string sum = line.substr(line.find("xxh3") + 7, 16);
  const std::string file = path_ + "/rank-00000.safetensors";
  std::string bytes = text_of(file);
  bytes[bytes.size() - data_of(file).size()] ^= 1;
  write_text(file, bytes);
  expect_has(error(), {"rank-00000.safetensors", "matrix", "[0:4, 0:3]", sum,
                       "but", "was saved"});
}

TEST_F(Damage, TheErrorNumbersTheLine) {
  write_text(path_ + "/index.json", "[{\"format\":\"another\"}\n]\n");
  expect_has(error_of_opening(), {"line 1 of ", "/index.json is wrong: ",
                                  "it is not the index of a checkpoint"});
  write_lines("[]\n");
  expect_has(error_of_opening(), {"line 2 of ", "it is not a JSON object"});
}

TEST_F(Damage, AMissingFile) {
  fs::remove(path_ + "/rank-00001.safetensors");
  expect_has(error(), {"rank-00001.safetensors", "No such file",
                       "[0:4, 3:6] of matrix"});
  fs::create_directory(path_ + "/rank-00001.safetensors");
  expect_has(error(), {"rank-00001.safetensors", "Is a directory"});
}

TEST_F(Damage, HolesAndOverlaps) {
  const std::string all = lines();
  const std::string box = line_with("\"box\":[0,0]"),
                    last = line_with("\"box\":[4,3]");
  const auto expect_error = [&](const std::string& text,
                                const std::vector<std::string>& parts) {
    write_lines(text);
    expect_has(error_of_opening(), parts);
  };
  expect_error(edited(all, last, ""), {"matrix", "[4:9, 3:6] are in no box"});
  expect_error(edited(all, box, box + box),
               {"matrix", "boxes [0:4, 0:3] and [0:4, 0:3] overlap"});
  // A box of as many elements, in another place.
  expect_error(edited(all, "\"box\":[0,3]", "\"box\":[0,2]"),
               {"matrix", "[0:4, 5:6] are in no box",
                "boxes [0:4, 0:3] and [0:4, 2:5] overlap"});
  // Two boxes in one place of a file.
  const size_t at = box.find("\"offset\":");
  expect_error(edited(all, box,
                      box.substr(0, at) + "\"offset\":9" +
                          box.substr(box.find(",\"bytes\""))),
               {"rank-00000.safetensors", "the boxes before it end at"});
  const std::string first = line_with("{\"rank\":0,");
  expect_error(edited(all, first, edited(first, "\"bytes\":", "\"bytes\":1")),
               {"rank-00000.safetensors"});
  expect_error(edited(all, "{\"rank\":3,", "{\"rank\":4,"),
               {"no earlier line has that rank"});
}

// An index that somebody wrote to do harm, with the checksum that fits it,
// gives an Error within a second and in little memory.
TEST_F(Damage, HostileIndices) {
  const auto expect_refused = [&](const std::string& name,
                                  bool refused = true) {
    const int64_t size =
        static_cast<int64_t>(fs::file_size(path_ + "/index.json"));
    const int64_t before = in_use;
    most_in_use = before;
    const std::clock_t start = std::clock();  // of this process alone
    const std::string e = error_of_opening();
    const double took = double(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_EQ(e != "no error", refused) << name << ": " << e;
    EXPECT_LE(most_in_use - before, size + (16 << 20)) << name;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(took, 1) << name;
#endif
    EXPECT_LE(e.size(), 2000u) << name;
  };
  const std::string all = lines();
  const std::string box = line_with("\"box\":[0,0]");
  const std::string tensor = line_with("\"tensor\":\"matrix\"");
  const std::string step = "{\"step\":1}\n";
  const std::string huge = "9223372036854775807";

  // First lines.
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("{}\n"),
        std::string(10 << 20, '{'), std::string(10 << 20, '\n'),
        edited(index_, "\"bytes\":", "\"bytes\":-"),
        edited(index_, "\"bytes\":", "\"bytes\":9223372036854775808"),
        edited(index_, "\"bytes\":", "\"bytes\":99999999999999999999999"),
        edited(index_, "\"version\":2", "\"version\":3"),
        edited(index_, "\"version\":2", "\"version\":2,\"version\":2")}) {
    write_text(path_ + "/index.json", text);
    expect_refused(text.substr(0, 100));
  }
  // Lines.
  std::vector<std::string> bad = {
      "\n", "x\n", "[]\n", "{}\n", "null\n",
      all + "{\"rank\":4}",  // no line feed
      all + std::string(200'000, '[') + '\n',
      all + std::string(10 << 20, '[') + '\n',
      all + std::string(10 << 20, '"') + '\n',
      all + "{\"value\":\"" + std::string(10 << 20, 'x') + "\",\"u64\":1}\n",
      all + "{\"value\":\"seed\",\"u64\":5}\n",
      all + "{\"value\":\"x\",\"u64\":-5}\n",
      all + "{\"value\":\"x\",\"i64\":9223372036854775808}\n",
      all + "{\"value\":\"x\",\"u64\":1e3}\n",
      all + "{\"value\":\"x\xff\",\"u64\":1}\n",
      all + "{\"value\":\"\xc0\x80\",\"u64\":1}\n",
      all + "{\"value\":\"\\ud800\",\"u64\":1}\n",
      all + tensor,  // a name twice
      all + "{\"tensor\":\"\xed\xa0\x80\",\"dtype\":\"f32\",\"shape\":[0]}\n",
      edited(all, tensor, ""),  // boxes of no tensor
      edited(all, "\"f32\"", "\"f33\""), edited(all, "\"f32\"", "\"f64\""),
      edited(all, "\"f32\"", "32"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[9,-6]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[9,6.0]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[9]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[1,1,1,1,1,1,1,9,6]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[4294967296,4294967296]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[9," + huge + "]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[4611686018427387904,4,0]"),
      edited(all, "\"shape\":[9,6]", "\"shape\":[18446744073709551615,6]"),
      edited(all, "\"box\":[0,0]", "\"box\":[0,-1]"),
      edited(all, "\"box\":[0,0]", "\"box\":[0," + huge + "]"),
      edited(all, "\"box\":[0,0]", "\"box\":[0]"),
      edited(all, "\"size\":[4,3]", "\"size\":[0,3]"),
      edited(all, "\"size\":[4,3]", "\"size\":[4," + huge + "]"),
      edited(all, "\"size\":[4,3]", "\"size\":[3,4]"),
      edited(all, "\"size\":[4,3]", "\"size\":[[4],3]"),
      edited(all, box, edited(box, "\"offset\":", "\"offset\":" + huge)),
      edited(all, box, edited(box, "\"offset\":0", "\"offset\":" + huge)),
      edited(all, box, edited(box, "\"bytes\":", "\"bytes\":" + huge)),
      edited(all, box, edited(box, "\"bytes\":48", "\"bytes\":44")),
      edited(all, box, edited(box, "\"rank\":0", "\"rank\":4294967296")),
      edited(all, box, edited(box, "\"xxh3\":\"", "\"xxh3\":\"0")),
      edited(all, box, edited(box, "\"xxh3\":\"", "\"xxh3\":\"0x")),
      edited(all, "{\"rank\":0,", "{\"rank\":-1,"),
      edited(all, "{\"rank\":0,", "{\"rank\":4294967296,"), all + file(0, 0),
      all + file(9, 1), all + file(9, 0),  // no rank 9
      all + "{\"rank\":0,\"bytes\":0}\n",
      all + edited(file(9, 0), "9", "\"../../x\""),
      edited(all, "\"header\":", "\"header\":1"),
      edited(all, "\"header\":", "\"header\":-"),
      edited(all, "\"header\":", "\"header\":9999999"),
      edited(all, "\"header\":", "\"header\":9223372036854775"),
      all + "{\"note\":1}\n", all + "{\"step\":1}\n",
      edited(all, "{\"step\":1}\n", ""),
      edited(all, "\"step\":1", "\"step\":-1"),
      edited(all, "\"step\":1", "\"step\":1.0"),
      edited(all, "\"rank\"", " \"rank\""),
      // The sum of a file's header and its boxes overflows.
      step + edited(file(0, INT64_MAX), "\"header\":0", "\"header\":8") +
          "{\"tensor\":\"x\",\"dtype\":\"bool\",\"shape\":[" + huge +
          "]}\n{\"box\":[0],\"size\":[" + huge +
          "],\"rank\":0,\"offset\":0,\"bytes\":" + huge +
          ",\"xxh3\":\"0000000000000000\"}\n"};
  // Many entries of every kind.
  std::string tensors = step, boxes = all, values = step, files = step,
              keys = all + "{";
  for (int i = 0; i < 100'000; ++i) {
    tensors += fmt::format(R"({{"tensor":"{}","dtype":"f32","shape":[0]}})"
                           "\n",
                           i);
    boxes += box;
    values += fmt::format("{{\"value\":\"{}\",\"u64\":1}}\n", i);
    files += file(i, 1);
    if (keys.size() < 255'000) keys += fmt::format("\"k{}\":1,", i);
  }
  for (const std::string& many :
       {tensors, boxes, values, files, keys + "\"x\":1}\n"})
    bad.push_back(many);
  // 100,000 boxes of one element each, of which two are the same.
  std::string single =
      step + file(0, 100'000) +
      "{\"tensor\":\"x\",\"dtype\":\"bool\",\"shape\":[1,100000]}\n";
  for (int i = 0; i < 100'000; ++i)
    single += fmt::format(
        R"({{"box":[0,{}],"size":[1,1],"rank":0,"offset":{},"bytes":1,)"
        R"("xxh3":"0000000000000000"}})"
        "\n",
        i == 77'777 ? 5 : i, i);
  bad.push_back(single);
  for (const std::string& text : bad) {
    write_lines(text);
    expect_refused(
        fmt::format("{}... of {} bytes", text.substr(0, 100), text.size()));
  }
  // The list around the objects.
  const std::string rest = index_.substr(index_.find('\n') + 1);
  for (const std::string& text :
       {all, edited(rest, "]\n", ""), rest + "]\n", rest + line_with("matrix"),
        edited(rest, ",{", "{"), edited(rest, ",{", "[{"),
        edited(rest, "]\n", "]")}) {
    write_rest(text);
    expect_refused("of the list: " + text.substr(0, 100));
  }
  write_rest(rest);
  expect_refused("the list as it was", false);
  // Indices of that size are accepted if they are good.
  const std::string good =
      edited(single, "\"box\":[0,5],\"size\":[1,1],\"rank\":0,\"offset\":77777",
             "\"box\":[0,77777],\"size\":[1,1],\"rank\":0,\"offset\":77777");
  write_lines(good);
  write_text(path_ + "/rank-00000.safetensors", std::string(100'000, '\0'));
  expect_refused("100,000 boxes", false);
  tensors.resize(tensors.find("{\"tensor\":\"60000\""));
  write_lines(tensors);
  expect_refused("60,000 tensors", false);
}

// Random edits: an Error or a checkpoint, nothing else.
TEST_F(Damage, RandomEdits) {
  std::mt19937 random(7);
  const std::string all = lines();
  const std::string pieces[] = {"0",   "-",  "9223372036854775807",
                                "[",   "]",  "{",
                                "}",   "\"", "\n",
                                ",",   ":",  "\\u0000",
                                "\xff"};
  int refused = 0;
  constexpr int kTimes = 3000;
  for (int i = 0; i < kTimes; ++i) {
    std::string text = all;
    for (unsigned n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      const size_t length = random() % 3 ? 1 : random() % 40;
      if (random() % 2)
        text.replace(at, length, pieces[random() % std::size(pieces)]);
      else  // a part of it again, elsewhere
        text.insert(at, text.substr(random() % text.size(), random() % 200));
    }
    write_lines(text);
    refused += error_of_opening() != "no error";
  }
  // An edit of a name or of a checksum leaves an index that can be read.
  EXPECT_GT(refused, kTimes / 2);
}

}  // namespace
}  // namespace dtensor
