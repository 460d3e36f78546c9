// safetensors and checkpoints: what is written comes back, what is damaged is refused, what fails changes nothing.
// Main entry: tag [checkpoint].
#include "catch.h"

#include <anello/core/atomic_file.h>
#include <anello/core/checkpoint.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

using namespace anello;
namespace fs = std::filesystem;

namespace {
/// A folder that goes with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("anello-checkpoint-" + std::to_string(getpid()));
  Folder() {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A file by hand: length, header, `data_bytes` zeros.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

/// The message that loading these bytes raises.
std::string refusal(const Folder& folder, const std::string& bytes) {
  const std::string path = folder / "bad.safetensors";
  write_all(path, bytes);
  try {
    load_safetensors(path);
  } catch (const IoError& e) {
    return e.what();
  }
  return "loaded";
}
}  // namespace

TEST_CASE("safetensors: all dtypes, shapes and metadata come back", "[checkpoint]") {
  const Folder folder;
  TensorMap tensors;
  for (DType d : {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64})
    tensors.set("t." + std::string(name(d)), copy_as(from_vector<double>({1, 0, 1, 1, 0, 1}, {2, 3}), d));
  tensors.set("scalar", full({}, 2.5));
  tensors.set("nothing", zeros({0, 4}));
  tensors.set("strided", as_strided(from_vector<float>({1, 2, 3, 4, 5, 6}), {3, 2}, {1, 3}, 0));
  const std::string path = folder / "a.safetensors";
  save_safetensors(path, tensors, {{"format", "pt"}, {"note", "\"quoted\" ü"}});
  const Safetensors file = load_safetensors(path);
  REQUIRE(file.metadata == Metadata{{"format", "pt"}, {"note", "\"quoted\" ü"}});
  REQUIRE(file.tensors.size() == tensors.size());
  auto expected = tensors.begin();
  for (const auto& [name, tensor] : file.tensors) {
    INFO(name);
    REQUIRE(name == expected->first);  // the order is kept
    REQUIRE(tensor.dtype() == expected->second.dtype());
    REQUIRE(tensor.shape() == expected->second.shape());
    REQUIRE(tensor.to_vector<double>() == expected->second.to_vector<double>());
    ++expected;
  }
  REQUIRE(file.tensors.at("strided").to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  REQUIRE(folder.count() == 1);
}

TEST_CASE("safetensors: the bytes are those of the format", "[checkpoint]") {
  const Folder folder;
  const std::string path = folder / "a";
  save_safetensors(path, {{"x", from_vector<uint8_t>({7, 8})}, {"y", from_vector<float>({1})}});
  const std::string bytes = read_all(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  REQUIRE(length % 8 == 0);
  REQUIRE(bytes.size() == 8 + length + 6);
  const std::string header = bytes.substr(8, length);
  // The four-byte elements come first in the data, so that they are aligned; the header keeps the order of the map.
  REQUIRE(
      header.substr(0, header.find_last_not_of(' ') + 1) ==
      R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");
  REQUIRE(bytes.substr(8 + length) == std::string("\x00\x00\x80\x3f\x07\x08", 6));
}

TEST_CASE("safetensors: an empty map is a file too", "[checkpoint]") {
  const Folder folder;
  save_safetensors(folder / "a", {});
  REQUIRE(load_safetensors(folder / "a").tensors.empty());
}

TEST_CASE("safetensors: every truncation is refused", "[checkpoint]") {
  const Folder folder;
  save_safetensors(folder / "a", {{"weight", ones({3, 5})}, {"bias", zeros({3}, int16)}}, {{"k", "v"}});
  const std::string whole = read_all(folder / "a");
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string message = refusal(folder, whole.substr(0, n));
    INFO(n << ": " << message);
    REQUIRE(message.find("bad.safetensors") != std::string::npos);
  }
  REQUIRE_THAT(refusal(folder, whole + "x"), contains_text("damaged"));
}

TEST_CASE("safetensors: damaged files are refused by name", "[checkpoint]") {
  const Folder folder;
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return concat(R"({"w":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
  };
  REQUIRE(refusal(folder, file_of(entry("F32", "[2]", "[0,8]"), 8)) == "loaded");
  REQUIRE_THAT(refusal(folder, std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), contains_text("header of"));
  REQUIRE_THAT(refusal(folder, file_of("{\"w\":", 0)), contains_text("not JSON"));
  REQUIRE_THAT(refusal(folder, file_of("[1]", 0)), contains_text("not a JSON object"));
  REQUIRE_THAT(refusal(folder, file_of("\xff\xfe", 0)), contains_text("not JSON"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F8", "[2]", "[0,8]"), 8)),
               contains_text("'w'") && contains_text("unknown dtype 'F8'"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[3]", "[0,8]"), 8)), contains_text("another size"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[2]", "[0,16]"), 8)), contains_text("16 of 8"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[2]", "[8,0]"), 8)), contains_text("8 to 0"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[-2]", "[0,8]"), 8)), contains_text("wrong number"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[2.5]", "[0,8]"), 8)), contains_text("wrong number"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "2", "[0,8]"), 8)), contains_text("describes tensor 'w'"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[2]", "[0]"), 8)), contains_text("describes tensor 'w'"));
  REQUIRE_THAT(refusal(folder, file_of(R"({"w":3})", 0)), contains_text("describes tensor 'w'"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), 4)),
               contains_text("13 dims"));
  // 2^32 * 2^32 elements wrap to 0 bytes in 64 bits.
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0)),
               contains_text("another size"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[18446744073709551615]", "[0,0]"), 0)),
               contains_text("another size"));
  REQUIRE_THAT(refusal(folder, file_of(entry("F32", "[2]", "[4,12]"), 12)), contains_text("4 bytes before"));
  REQUIRE_THAT(refusal(folder, file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                                       6)),
               contains_text("'b' overlapping"));
  REQUIRE_THAT(refusal(folder, file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                       R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                       4)),
               contains_text("'a' twice"));
  REQUIRE_THAT(refusal(folder, file_of(R"({"__metadata__":{"a":1}})", 0)), contains_text("not a text"));
  REQUIRE_THAT(refusal(folder, file_of(R"({"__metadata__":[]})", 0)), contains_text("__metadata__"));
  // Deeply nested JSON is refused before anything walks through it, and long content is quoted in part.
  const std::string deep(100000, '['), closed = deep + std::string(100000, ']');
  REQUIRE_THAT(refusal(folder, file_of("{\"a\":" + closed + "}", 0)), contains_text("nested deeper than 8"));
  REQUIRE_THAT(refusal(folder, file_of(deep, 0)), contains_text("nested deeper than 8"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  REQUIRE_THAT(refusal(folder, file_of(objects, 0)), contains_text("nested deeper than 8"));
  REQUIRE(refusal(folder, file_of("{\"a\":\"" + std::string(100000, 'x') + "\"}", 0)).size() < 1000);
  REQUIRE(refusal(folder, file_of("{\"" + std::string(100000, 'x') + "\":1}", 0)).size() < 1000);
  REQUIRE_THROWS_AS(load_safetensors(folder / "absent"), IoError);
  REQUIRE_THROWS_AS(load_safetensors(folder.path.string()), IoError);
}

TEST_CASE("safetensors: a failed save leaves the former file and nothing else", "[checkpoint]") {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  save_safetensors(path, {{"w", ones({4})}});
  const std::string before = read_all(path);

  // A full disk, as the system shows it to one process: no file may grow beyond 64 KiB.
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{1 << 16, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    save_safetensors(path, {{"w", ones({1 << 20})}});
  } catch (const IoError& e) {
    message = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  REQUIRE_THAT(message, contains_text("a.safetensors") && contains_text("too large"));
  REQUIRE(read_all(path) == before);
  REQUIRE(folder.count() == 1);

  REQUIRE_THROWS_AS(save_safetensors(path, {{"w", Tensor()}}), Error);
  REQUIRE_THROWS_AS(save_safetensors(path, {{"__metadata__", ones({1})}}), ValueError);
  REQUIRE_THROWS_AS(save_safetensors(path, {{"\xff", ones({1})}}), ValueError);
  REQUIRE_THROWS_AS(save_safetensors(folder / "no/such/folder", {}), IoError);
  REQUIRE_THROWS_AS(save_safetensors(folder.path.string(), {}), IoError);
  REQUIRE(read_all(path) == before);
  REQUIRE(folder.count() == 1);
}

TEST_CASE("safetensors: a symbolic link keeps pointing", "[checkpoint]") {
  const Folder folder;
  save_safetensors(folder / "real", {{"w", ones({1})}});
  fs::create_symlink("real", folder / "link");
  save_safetensors(folder / "link", {{"w", zeros({2})}});
  REQUIRE(fs::is_symlink(folder / "link"));
  REQUIRE(load_safetensors(folder / "real").tensors.at("w").numel() == 2);
}

TEST_CASE("an atomic file that is not committed leaves nothing", "[checkpoint]") {
  const Folder folder;
  {
    AtomicFile file(folder / "a");
    file.write("half");
    REQUIRE(folder.count() == 1);
  }
  REQUIRE(folder.count() == 0);
}

TEST_CASE("files whose name has a NUL are refused, not cut short", "[checkpoint]") {
  const Folder folder;
  std::ofstream(folder / "mine") << "mine";
  const std::string name = folder / "mine" + std::string(1, '\0') + ".safetensors";
  REQUIRE_THROWS_AS(save_safetensors(name, {}), IoError);
  REQUIRE_THROWS_WITH(load_safetensors(name), contains_text("NUL"));
  REQUIRE(fs::file_size(folder / "mine") == 4);
}

TEST_CASE("checkpoint: every value comes back with every bit", "[checkpoint]") {
  const Folder folder;
  const std::string path = folder / "c.safetensors";
  State state;
  state.put("model", State(TensorMap{{"fc.weight", ones({2, 2})}}));
  State rest;
  rest.values = {{"flag", true},
                 {"count", int64_t{-7}},
                 {"large", std::numeric_limits<int64_t>::max()},
                 {"tenth", 0.1},
                 {"whole", 2.0},
                 {"tiny", std::numeric_limits<double>::denorm_min()},
                 {"none", std::nan("")},
                 {"infinite", -std::numeric_limits<double>::infinity()},
                 {"text", std::string("line\n\"ü\"")},
                 {"integers", std::vector<int64_t>{1, -2}},
                 {"reals", std::vector<double>{1.0, 1.0 / 3, std::numeric_limits<double>::infinity()}}};
  state.put("rest", rest);
  save_checkpoint(path, state);
  const State loaded = load_checkpoint(path);
  REQUIRE(loaded.part("model").tensors.at("fc.weight").to_vector<float>() == std::vector<float>(4, 1));
  State back = loaded.part("rest");
  REQUIRE(std::isnan(back.get<double>("none")));
  back.values.erase("none");
  rest.values.erase("none");
  REQUIRE(back.values == rest.values);
  REQUIRE(fs::exists(path + ".json"));
  fs::remove(path + ".json");  // for people only
  REQUIRE(load_checkpoint(path).get<bool>("rest.flag"));
}

TEST_CASE("checkpoint: weights alone, or damaged values, are refused", "[checkpoint]") {
  const Folder folder;
  save_safetensors(folder / "w", {{"w", ones({1})}});
  REQUIRE_THROWS_WITH(load_checkpoint(folder / "w"), contains_text("no training state"));
  save_safetensors(folder / "d", {}, {{"anello.values", "{\"a\": [1, {}]}"}});
  REQUIRE_THROWS_AS(load_checkpoint(folder / "d"), IoError);
  save_safetensors(folder / "e", {}, {{"anello.values", "[1]"}});
  REQUIRE_THROWS_AS(load_checkpoint(folder / "e"), IoError);
}

TEST_CASE("state: parts, and values of the wrong kind", "[checkpoint]") {
  State state;
  state.values["n"] = int64_t{3};
  REQUIRE(state.get<double>("n") == 3.0);
  REQUIRE_THROWS_AS(state.get<std::string>("n"), DTypeError);
  REQUIRE_THROWS_AS(state.get<bool>("absent"), IndexError);
  REQUIRE_THROWS_AS(TensorMap().at("absent"), IndexError);
  State all;
  all.put("a", state);
  all.put("ab", state);
  REQUIRE(all.part("a").values.size() == 1);
}
