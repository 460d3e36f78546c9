// CIFAR-10: finds the files, checks them, and turns their colour planes into channels-last images.
// Main entry: load_cifar10().
#include <anello/datasets/archive.h>
#include <anello/datasets/cifar10.h>
#include <anello/datasets/sha256.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>

namespace anello::data {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kOp = "load_cifar10";
constexpr int64_t kRecords = 10000, kPixels = 32 * 32, kRecordBytes = 1 + 3 * kPixels,
                  kFileBytes = kRecords * kRecordBytes;
constexpr char kFolder[] = "cifar-10-batches-bin", kArchive[] = "cifar-10-binary.tar.gz";

struct File {
  const char* name;
  const char* sha256;
};
// In official order; the last one is the test set.
constexpr std::array<File, 6> kFiles{{
    {"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
}};
constexpr char kUrl[] = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
constexpr char kArchiveSha256[] = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";
constexpr int64_t kArchiveBytes = 170052171;

using Bytes = std::vector<uint8_t>;

// Checks one file's content and puts it into place. Files are independent, so that one can be converted while the next
// is read.
class Assembler {
 public:
  explicit Assembler(bool verify) : verify_(verify) {
    const auto make = [](int64_t count) {
      ImageDataset d{empty({count, 32, 32, 3}, uint8), empty({count}, int64), {}, {}, {}};
      d.class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
      d.mean = {0.4914, 0.4822, 0.4465};
      d.stddev = {0.2470, 0.2435, 0.2616};
      return d;
    };
    splits_ = {make(5 * kRecords), make(kRecords)};
  }

  // `shown` is the name for messages.
  void put(size_t file, const std::string& shown, const Bytes& bytes) const {
    if (verify_) {
      const std::string found = sha256(bytes.data(), bytes.size());
      check<IoError>(found == kFiles[file].sha256, kOp, shown, " has SHA-256 ", found, ", not ", kFiles[file].sha256,
                     ". Hint: it is damaged or not the official file; get it again.");
    }
    const bool test = file == kFiles.size() - 1;
    const ImageDataset& target = test ? splits_.test : splits_.train;
    const int64_t first = test ? 0 : static_cast<int64_t>(file) * kRecords;
    uint8_t* out = target.images.data<uint8_t>() + first * 3 * kPixels;
    int64_t* label = target.labels.data<int64_t>() + first;
    const uint8_t* record = bytes.data();
    for (int64_t i = 0; i < kRecords; ++i, record += kRecordBytes) {
      check<IoError>(record[0] < 10, kOp, shown, ": label of record ", i, " is ", int{record[0]},
                     ", not 0..9. Hint: it is damaged or not CIFAR-10; get it again.");
      *label++ = record[0];
      const uint8_t* plane = record + 1;
      for (int64_t p = 0; p < kPixels; ++p, out += 3) {
        out[0] = plane[p];
        out[1] = plane[p + kPixels];
        out[2] = plane[p + 2 * kPixels];
      }
    }
  }

  ImageSplits splits() const { return splits_; }

 private:
  bool verify_;
  ImageSplits splits_;
};

void check_size(const std::string& shown, uint64_t bytes) {
  check<IoError>(bytes == static_cast<uint64_t>(kFileBytes), kOp, shown, " has ", bytes, " bytes, not ", kFileBytes,
                 ". Hint: it is truncated or not CIFAR-10's binary version; get it again.");
}

// One file is converted in the background while the caller reads the next.
class Background {
 public:
  explicit Background(const Assembler& assembler) : assembler_(assembler) {}
  void put(size_t file, std::string shown, Bytes bytes) {
    finish();
    work_ = std::async(
        [this, file, shown = std::move(shown), bytes = std::move(bytes)] { assembler_.put(file, shown, bytes); });
  }
  void finish() {
    if (work_.valid()) work_.get();
  }

 private:
  const Assembler& assembler_;
  std::future<void> work_;
};

Bytes read_file(const fs::path& path) {
  std::error_code code;
  const uint64_t size = fs::file_size(path, code);
  check<IoError>(!code, kOp, "cannot read ", path.string(), ": ", code.message());
  check_size(path.string(), size);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  check<IoError>(file != nullptr, kOp, "cannot open ", path.string(), ": ", std::strerror(errno));
  Bytes bytes(static_cast<size_t>(kFileBytes));
  const size_t got = std::fread(bytes.data(), 1, bytes.size(), file.get());
  check<IoError>(got == bytes.size(), kOp, "cannot read ", path.string(), ": ", got, " of ", bytes.size(), " bytes");
  return bytes;
}

ImageSplits load_folder(const fs::path& folder, bool verify) {
  const Assembler assembler(verify);
  Background background(assembler);
  for (size_t i = 0; i < kFiles.size(); ++i) {
    const fs::path path = folder / kFiles[i].name;
    check<IoError>(fs::exists(path), kOp, path.string(),
                   " is missing. Hint: the folder needs data_batch_1.bin to data_batch_5.bin and ", "test_batch.bin.");
    background.put(i, path.string(), read_file(path));
  }
  background.finish();
  return assembler.splits();
}

ImageSplits load_archive(const fs::path& path, bool verify) {
  const Assembler assembler(verify);
  Background background(assembler);
  std::array<bool, kFiles.size()> seen{};
  TarReader archive(path.string());
  while (archive.next()) {
    const std::string member = fs::path(archive.name()).filename().string();
    for (size_t i = 0; i < kFiles.size(); ++i) {
      if (member != kFiles[i].name || seen[i]) continue;
      const std::string shown = concat(archive.name(), " in ", path.string());
      check_size(shown, archive.size());
      Bytes bytes(archive.size());
      archive.read(bytes.data());
      background.put(i, shown, std::move(bytes));
      seen[i] = true;
      break;
    }
  }
  background.finish();
  for (size_t i = 0; i < kFiles.size(); ++i)
    check<IoError>(seen[i], kOp, kFiles[i].name, " is missing in ", path.string(), ". Hint: the archive needed is ",
                   kArchive, ", the binary version.");
  return assembler.splits();
}

bool holds_batches(const fs::path& folder) {
  for (const File& file : kFiles)
    if (fs::exists(folder / file.name)) return true;
  return false;
}

}  // namespace

ImageSplits load_cifar10(const std::string& path_text, Verify verify) {
  const fs::path path = path_text;
  std::error_code code;
  check<IoError>(fs::exists(path, code), kOp, "there is no ", path.string(),
                 ". Hint: a folder with data_batch_1.bin ..., or ", kArchive, ".");
  const bool always = verify == Verify::always, archive_too = verify != Verify::never;
  if (!fs::is_directory(path)) return load_archive(path, archive_too);
  if (holds_batches(path)) return load_folder(path, always);
  if (holds_batches(path / kFolder)) return load_folder(path / kFolder, always);
  if (fs::exists(path / kArchive)) return load_archive(path / kArchive, archive_too);
  const bool python_version = fs::exists(path / "cifar-10-batches-py") || fs::exists(path / "data_batch_1");
  fail<IoError>(
      kOp, path.string(), " holds neither data_batch_1.bin nor ", kFolder, " nor ", kArchive,
      python_version ? ". Hint: these are the files for Python; get the binary version, " : ". Hint: get it from ",
      kUrl, ".");
}

std::string download_cifar10(const std::string& folder, const Progress& progress,
                             const std::vector<std::string>& fetcher) {
  const char* other = std::getenv("ANELLO_CIFAR10_URL");
  Download d;
  d.url = other != nullptr && *other != 0 ? other : kUrl;
  d.path = (fs::path(folder.empty() ? cache_dir() : folder) / kArchive).string();
  d.sha256 = kArchiveSha256;
  d.bytes = kArchiveBytes;
  d.progress = progress;
  d.fetcher = fetcher;
  d.hint = "give a folder that has the files (--data DIR), or train on images made here (--data synthetic)";
  download(d);
  return d.path;
}

}  // namespace anello::data
