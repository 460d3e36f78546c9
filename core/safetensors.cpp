// Reading and writing of safetensors: 8 bytes length of the header, a JSON header, the bytes of the tensors.
// Main entry: save_safetensors(), load_safetensors().
#include <anello/core/atomic_file.h>
#include <anello/core/checkpoint.h>
#include <anello/core/json/parse.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <system_error>

namespace anello {

namespace {
static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
using detail::Json;
using detail::shorten;

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr size_t kHeaderDepth = 8;            // the format needs 3
constexpr const char* kMetadata = "__metadata__";
constexpr std::pair<DType, const char*> kNames[] = {
    {bool_, "BOOL"}, {uint8, "U8"},    {int8, "I8"},       {int16, "I16"},   {int32, "I32"},
    {int64, "I64"},  {float16, "F16"}, {bfloat16, "BF16"}, {float32, "F32"}, {float64, "F64"}};
static_assert(std::size(kNames) == kDTypeCount);

const char* format_name(DType dtype) {
  return std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return n.first == dtype; })->second;
}

// --- Writing ---

/// Wide elements first, so that every tensor starts at a multiple of its item size.
std::vector<size_t> data_order(const TensorMap& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors.begin()[static_cast<std::ptrdiff_t>(a)].second.item_size() >
           tensors.begin()[static_cast<std::ptrdiff_t>(b)].second.item_size();
  });
  return order;
}

std::string make_header(const TensorMap& tensors, const Metadata& metadata, const std::vector<size_t>& order) {
  std::vector<uint64_t> begins(tensors.size());
  uint64_t end = 0;
  for (size_t i : order) {
    begins[i] = end;
    end += tensors.begin()[static_cast<std::ptrdiff_t>(i)].second.nbytes();
  }
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  size_t i = 0;
  for (const auto& [name, tensor] : tensors) {
    check<ValueError>(name != kMetadata, "save_safetensors", "'", kMetadata, "' is reserved and cannot name a tensor");
    const uint64_t begin = begins[i++];
    header[name] = Json{{"dtype", format_name(tensor.dtype())},
                        {"shape", tensor.shape().vector()},
                        {"data_offsets", {begin, begin + tensor.nbytes()}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    fail<ValueError>("save_safetensors", "a name or a metadata text is not valid UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts aligned
  return text;
}

// --- Reading ---

/// An open file that is read in whole pieces; names itself in errors.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (path.find('\0') != std::string::npos) {
      if (descriptor_ >= 0) ::close(descriptor_);
      fail<IoError>("load", "a file's name with a NUL: '", path.c_str(), "' ...");
    }
    if (descriptor_ < 0) fail_file("cannot be opened: ", std::generic_category().message(errno));
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(descriptor_);
      fail_file("is not a regular file");
    }
    size_ = static_cast<uint64_t>(info.st_size);
  }
  ~Reader() { ::close(descriptor_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  uint64_t size() const { return size_; }
  void read(void* to, uint64_t bytes, uint64_t at) const {
    char* next = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got =
          ::pread(descriptor_, next, std::min<uint64_t>(bytes, uint64_t{1} << 30), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_file("cannot be read: ", std::generic_category().message(errno));
      if (got == 0) fail_file("became shorter while it was read");
      next += got;
      at += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
  }
  template <class... Parts>
  [[noreturn]] void fail_file(const Parts&... parts) const {
    fail<IoError>("load", "'", path_, "' ", shorten(concat(parts...), 400));
  }

 private:
  std::string path_;
  int descriptor_;
  uint64_t size_ = 0;
};

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;
};

Json parse_header(const Reader& file, const std::string& text) {
  Json header;
  try {
    header = detail::parse_json(text, kHeaderDepth);
  } catch (const detail::JsonError& e) {
    file.fail_file("is no safetensors file: its header is not JSON of the format (", e.what(), ")");
  }
  if (!header.is_object()) file.fail_file("is no safetensors file: its header is not a JSON object");
  return header;
}

/// A whole number of at least 0, or a failure.
uint64_t whole_number(const Reader& file, const std::string& name, const Json& value) {
  if (!value.is_number_unsigned())
    file.fail_file("has a wrong number for tensor '", name, "': ", shorten(value.dump(), 80));
  return value.get<uint64_t>();
}

Entry parse_entry(const Reader& file, const std::string& name, const Json& item, uint64_t data_size) {
  const bool complete = item.is_object() && item.size() == 3 && item.contains("dtype") && item["dtype"].is_string() &&
                        item.contains("shape") && item["shape"].is_array() && item.contains("data_offsets") &&
                        item["data_offsets"].is_array() && item["data_offsets"].size() == 2;
  if (!complete)
    file.fail_file("describes tensor '", name, "' without dtype, shape and data_offsets: ", shorten(item.dump(), 80));
  const auto dtype_text = item["dtype"].get<std::string>();
  const auto* dtype =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return dtype_text == n.second; });
  if (dtype == std::end(kNames)) file.fail_file("has tensor '", name, "' of the unknown dtype '", dtype_text, "'");
  if (item["shape"].size() > kMaxDims)
    file.fail_file("has tensor '", name, "' of ", item["shape"].size(), " dims, at most ", kMaxDims, " are possible");

  Entry entry{name,
              dtype->first,
              {},
              whole_number(file, name, item["data_offsets"][0]),
              whole_number(file, name, item["data_offsets"][1])};
  if (entry.begin > entry.end || entry.end > data_size)
    file.fail_file("puts tensor '", name, "' at bytes ", entry.begin, " to ", entry.end, " of ", data_size,
                   " bytes of data. Hint: the file may be truncated.");
  uint64_t bytes = item_size(entry.dtype);
  bool too_large = false, has_zero = false;
  for (const Json& size : item["shape"]) {
    const uint64_t n = whole_number(file, name, size);
    too_large |=
        n > static_cast<uint64_t>(INT64_MAX) || __builtin_mul_overflow(bytes, std::max<uint64_t>(n, 1), &bytes);
    has_zero |= n == 0;
    entry.shape.push_back(static_cast<int64_t>(n));
  }
  if (has_zero) bytes = 0;
  if (too_large || bytes != entry.end - entry.begin)
    file.fail_file("gives tensor '", name, "' ", entry.end - entry.begin, " bytes, but its shape ",
                   shorten(item["shape"].dump(), 80), " in ", dtype_text, " is another size");
  return entry;
}

/// Every byte of the data belongs to exactly one tensor.
void check_layout(const Reader& file, const std::vector<Entry>& entries, uint64_t data_size) {
  std::vector<const Entry*> sorted;
  for (const Entry& entry : entries) sorted.push_back(&entry);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t end = 0;
  for (const Entry* entry : sorted) {
    if (entry->begin < end) file.fail_file("has tensor '", entry->name, "' overlapping another one");
    if (entry->begin > end)
      file.fail_file("has ", entry->begin - end, " bytes before tensor '", entry->name, "' that belong to none");
    end = entry->end;
  }
  if (end != data_size)
    file.fail_file("has ", data_size, " bytes of data, its tensors take ", end,
                   ". Hint: it is damaged, save it again.");
}

Metadata parse_metadata(const Reader& file, const Json& item) {
  Metadata metadata;
  if (!item.is_object()) file.fail_file("has a ", kMetadata, " that is not a JSON object");
  for (const auto& [key, value] : item.items()) {
    if (!value.is_string()) file.fail_file("has metadata '", key, "' that is not a text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}
}  // namespace

void save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  const std::vector<size_t> order = data_order(tensors);
  const std::string header = make_header(tensors, metadata, order);
  check<ValueError>(header.size() <= kMaxHeader, "save_safetensors", "the header would have ", header.size(),
                    " bytes, more than the ", kMaxHeader, " that the format allows");
  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header);
  for (size_t i : order) {
    const Tensor& tensor = tensors.begin()[static_cast<std::ptrdiff_t>(i)].second;
    const Tensor data = contiguous_data(copy_to_device(tensor, cpu));
    if (data.nbytes() > 0) file.write(data.raw_data(), data.nbytes());
  }
  file.commit();
}

Safetensors load_safetensors(const std::string& path) {
  const Reader file(path);
  uint64_t length = 0;
  if (file.size() < sizeof length) file.fail_file("is no safetensors file: it has ", file.size(), " bytes");
  file.read(&length, sizeof length, 0);
  if (length > kMaxHeader || length > file.size() - sizeof length)
    file.fail_file("is truncated or no safetensors file: a header of ", length, " bytes in a file of ", file.size());
  std::string text(length, '\0');
  file.read(text.data(), length, sizeof length);
  const Json header = parse_header(file, text);
  const uint64_t data_start = sizeof length + length, data_size = file.size() - data_start;

  Safetensors result;
  std::vector<Entry> entries;
  for (const auto& [name, item] : header.items()) {
    if (name == kMetadata)
      result.metadata = parse_metadata(file, item);
    else
      entries.push_back(parse_entry(file, name, item, data_size));
  }
  check_layout(file, entries, data_size);
  for (const Entry& entry : entries) {
    Tensor tensor = empty(entry.shape, entry.dtype);
    if (entry.end > entry.begin) file.read(tensor.raw_data(), entry.end - entry.begin, data_start + entry.begin);
    result.tensors.set(entry.name, std::move(tensor));
  }
  return result;
}

}  // namespace anello
