// SPDX-License-Identifier: Apache-2.0
// Compares texts with those of transformers' apply_chat_template(), whose
// hashes tools/chat_template_goldens.py has written.
#include "dtensor/nn/text/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using dtensor::testing::error_of;
using nlohmann::ordered_json;

const std::string kData = "tests/nn/text/data/";
constexpr std::time_t kNow = 1764201600;  // 2025-11-27

ordered_json json_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return ordered_json::parse(file);
}

std::string hash_of(const std::string& text) {  // FNV-1a
  uint32_t hash = 0x811C9DC5;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193;
  return fmt::format("{:08x}", hash);
}

std::string text_of(const ChatTemplate& t, const ordered_json& chat) {
  ChatTemplate::Options options{
      .add_generation_prompt = chat["add_generation_prompt"].get<bool>(),
      .now = kNow};
  if (chat.contains("tools")) options.tools = &chat["tools"];
  if (chat.contains("variables")) options.variables = &chat["variables"];
  return t.apply(chat["messages"], options);
}

TEST(ChatTemplateTest, GivesTheTextsOfTransformers) {
  setenv("TZ", "UTC", 1);
  const ordered_json templates = json_of(kData + "templates.json");
  const ordered_json chats = json_of(kData + "chats.json");
  ASSERT_GE(templates.size(), 30u);
  std::ifstream golden(kData + "chats.golden");
  size_t count = 0;
  for (std::string name, chat, hash; golden >> name >> chat >> hash; count++) {
    SCOPED_TRACE(name + " " + chat);
    const ChatTemplate t(templates[name].get<std::string>(),
                         {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    std::string text;
    const std::string error = error_of([&] { text = text_of(t, chats[chat]); });
    if (hash == "error") {
      EXPECT_EQ(error.substr(0, 15), "[chat_template]") << text;
    } else {
      EXPECT_EQ(error, "no error");
      EXPECT_EQ(hash_of(text), hash)
          << text << "\n`tools/chat_template_goldens.py " << kData << " --show "
          << name << " " << chat << "` prints the right text";
    }
  }
  EXPECT_EQ(count, templates.size() * chats.size());
}

TEST(ChatTemplateTest, SaysWhatATemplateRaises) {
  const ChatTemplate t("{{ raise_exception('No system\nmessage.') }}");
  const std::string error = error_of([&] { t.apply(ordered_json::array()); });
  EXPECT_EQ(error.substr(0, 16), "[chat_template] ");
  EXPECT_NE(error.find("No system message."), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  EXPECT_EQ(error_of([] { ChatTemplate("{% if x %}"); }).substr(0, 45),
            "[chat_template] the template cannot be read: ");
  const ordered_json list = ordered_json::array({1});
  EXPECT_EQ(error_of([&] {
              t.apply(ordered_json::array(), {.variables = &list});
            }).substr(0, 63),
            "[chat_template] variables are of the JSON type array; pass an o");
  EXPECT_EQ(error_of([&] { t.apply("Hi"); }),
            "[chat_template] messages are of the JSON type string; pass a list "
            "of objects with \"role\" and \"content\"");
}

TEST(ChatTemplateTest, ReadsTheFilesOfACheckpoint) {
  const std::string dir = ::testing::TempDir() + "/chat_template";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  EXPECT_NE(error_of([&] {
              ChatTemplate::from_pretrained(dir);
            }).find("has no template, neither in chat_template.jinja nor"),
            std::string::npos);
  // A name that is too long for the file system, and a folder instead of a
  // file.
  EXPECT_EQ(error_of([&] {
              ChatTemplate::from_pretrained(std::string(300, 'a'));
            }).find("[chat_template] "),
            0u);
  const std::string folder = dir + "/chat_template.jinja";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(error_of([&] { ChatTemplate::from_pretrained(dir); }),
            "[chat_template] cannot read " + folder +
                ": Is a directory; make it readable, or name another folder");
  std::filesystem::remove(folder);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(dir + "/" + name) << text;
  };
  const auto apply = [&](const ChatTemplate::Options& options = {}) {
    return ChatTemplate::from_pretrained(dir).apply(
        ordered_json::parse(R"([{"role": "user", "content": "Hi"}])"), options);
  };
  write("special_tokens_map.json",
        R"({"bos_token": "<a>", "unk_token": "<u>"})");
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>"}, "eos_token": null,
            "chat_template": "{{ bos_token + messages[0].content + unk_token }}"})");
  EXPECT_EQ(apply(), "<b>Hi<u>");
  const ordered_json variables = {{"bos_token", "<c>"}};
  EXPECT_EQ(apply({.variables = &variables}), "<c>Hi<u>");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
                              {"name": "tool_use", "template": "tools"}]})");
  const ordered_json tools = ordered_json::array();
  EXPECT_EQ(apply(), "plain");
  EXPECT_EQ(apply({.tools = &tools}), "tools");
  write("chat_template.jinja", "{{ messages | length }}\n");
  EXPECT_EQ(apply({.tools = &tools}), "1");
}

}  // namespace
}  // namespace dtensor::nn
