// A file system for RocksDB that encrypts the files of registered directories. It knows nothing of
// keys: src/rows.rs tells for each path whether its file is encrypted, and encrypts the bytes.
//
// An encrypted file has a prefix of 4096 bytes, so that reads and writes past the page cache stay
// aligned. Offsets and lengths that RocksDB sees are those of the content.

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace rocksdb;

extern "C" {

// Must have the same layout as `Calls` in rows.rs.
struct steelyard_atrest_calls {
  uint8_t (*is_covered)(const char* path, size_t length);
  int32_t (*begin)(const char* path, size_t length, char* prefix, const void** stream);
  int32_t (*open)(const char* path, size_t length, const char* head, size_t head_length,
                  const void** stream);
  void (*apply)(const void* stream, uint64_t offset, char* bytes, size_t length);
  void (*release)(const void* stream);
};

}  // extern "C"

namespace {

constexpr size_t kPrefix = 4096;
constexpr size_t kAlignment = 4096;
// Bytes that are encrypted and written at once.
constexpr size_t kChunk = 256 << 10;
constexpr int32_t kPlain = 0;
constexpr int32_t kEncrypted = 1;

const steelyard_atrest_calls* calls = nullptr;

// The cipher of an open file.
class Stream {
 public:
  explicit Stream(const void* raw) : raw_(raw) {}
  ~Stream() { calls->release(raw_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void apply(uint64_t offset, char* bytes, size_t length) const { calls->apply(raw_, offset, bytes, length); }

 private:
  const void* const raw_;
};

// Memory that is aligned for direct I/O.
class Buffer {
 public:
  explicit Buffer(size_t length) {
    void* bytes = nullptr;
    // Running out of memory ends the process, as everywhere in RocksDB.
    if (posix_memalign(&bytes, kAlignment, length) != 0) abort();
    bytes_ = static_cast<char*>(bytes);
  }
  ~Buffer() { free(bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* get() const { return bytes_; }

 private:
  char* bytes_;
};

// Decrypts what was read. The result points to `scratch` afterwards.
void decrypt(const Stream& stream, uint64_t offset, Slice* result, char* scratch) {
  if (result->size() == 0) return;
  if (result->data() != scratch) memmove(scratch, result->data(), result->size());
  stream.apply(offset, scratch, result->size());
  *result = Slice(scratch, result->size());
}

class Writable : public FSWritableFileWrapper {
 public:
  Writable(std::unique_ptr<FSWritableFile> file, std::unique_ptr<Stream> stream, uint64_t size)
      : FSWritableFileWrapper(file.get()),
        file_(std::move(file)),
        stream_(std::move(stream)),
        buffer_(kChunk),
        size_(size) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    if (broken_) return IOStatus::IOError("an earlier write of the file failed");
    for (size_t at = 0; at < data.size(); at += kChunk) {
      const Slice part = encrypt(data, at, size_);
      const IOStatus status = file_->Append(part, options, dbg);
      if (!status.ok()) return broken(status);
      size_ += part.size();
    }
    return IOStatus::OK();
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo&,
                  IODebugContext* dbg) override {
    return Append(data, options, dbg);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* dbg) override {
    if (broken_) return IOStatus::IOError("an earlier write of the file failed");
    for (size_t at = 0; at < data.size(); at += kChunk) {
      const Slice part = encrypt(data, at, offset + at);
      const IOStatus status = file_->PositionedAppend(part, kPrefix + offset + at, options, dbg);
      if (!status.ok()) return broken(status);
    }
    size_ = offset + data.size();
    return IOStatus::OK();
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo&, IODebugContext* dbg) override {
    return PositionedAppend(data, offset, options, dbg);
  }
  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = file_->Truncate(size + kPrefix, options, dbg);
    if (status.ok()) size_ = size;
    return status;
  }
  uint64_t GetFileSize(const IOOptions& options, IODebugContext* dbg) override {
    const uint64_t size = file_->GetFileSize(options, dbg);
    return size < kPrefix ? 0 : size - kPrefix;
  }
  IOStatus InvalidateCache(size_t offset, size_t length) override {
    return file_->InvalidateCache(length == 0 ? offset : offset + kPrefix, length);
  }
  IOStatus RangeSync(uint64_t offset, uint64_t length, const IOOptions& options,
                     IODebugContext* dbg) override {
    // From the beginning on, the prefix too.
    return offset == 0 ? file_->RangeSync(0, length + kPrefix, options, dbg)
                       : file_->RangeSync(offset + kPrefix, length, options, dbg);
  }
  void PrepareWrite(size_t offset, size_t length, const IOOptions& options, IODebugContext* dbg) override {
    file_->PrepareWrite(offset + kPrefix, length, options, dbg);
  }
  IOStatus Allocate(uint64_t offset, uint64_t length, const IOOptions& options,
                    IODebugContext* dbg) override {
    return file_->Allocate(offset + kPrefix, length, options, dbg);
  }

 private:
  // A failed write may have written a part. A later one would encrypt other bytes with the same key
  // stream.
  IOStatus broken(const IOStatus& status) {
    broken_ = true;
    return status;
  }
  Slice encrypt(const Slice& data, size_t at, uint64_t offset) {
    const size_t length = std::min(kChunk, data.size() - at);
    memcpy(buffer_.get(), data.data() + at, length);
    stream_->apply(offset, buffer_.get(), length);
    return Slice(buffer_.get(), length);
  }

  const std::unique_ptr<FSWritableFile> file_;
  const std::unique_ptr<Stream> stream_;
  const Buffer buffer_;
  uint64_t size_;
  bool broken_ = false;
};

class Sequential : public FSSequentialFileWrapper {
 public:
  Sequential(std::unique_ptr<FSSequentialFile> file, std::unique_ptr<Stream> stream)
      : FSSequentialFileWrapper(file.get()), file_(std::move(file)), stream_(std::move(stream)) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) override {
    const IOStatus status = file_->Read(n, options, result, scratch, dbg);
    if (!status.ok()) return status;
    decrypt(*stream_, offset_, result, scratch);
    offset_ += result->size();
    return status;
  }
  IOStatus Skip(uint64_t n) override {
    const IOStatus status = file_->Skip(n);
    if (status.ok()) offset_ += n;
    return status;
  }
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                          IODebugContext* dbg) override {
    const IOStatus status = file_->PositionedRead(offset + kPrefix, n, options, result, scratch, dbg);
    if (status.ok()) decrypt(*stream_, offset, result, scratch);
    return status;
  }
  IOStatus InvalidateCache(size_t offset, size_t length) override {
    return file_->InvalidateCache(length == 0 ? offset : offset + kPrefix, length);
  }

 private:
  const std::unique_ptr<FSSequentialFile> file_;
  const std::unique_ptr<Stream> stream_;
  uint64_t offset_ = 0;
};

class RandomAccess : public FSRandomAccessFileWrapper {
 public:
  RandomAccess(std::unique_ptr<FSRandomAccessFile> file, std::unique_ptr<Stream> stream)
      : FSRandomAccessFileWrapper(file.get()), file_(std::move(file)), stream_(std::move(stream)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    const IOStatus status = file_->Read(offset + kPrefix, n, options, result, scratch, dbg);
    if (status.ok()) decrypt(*stream_, offset, result, scratch);
    return status;
  }
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* dbg) override {
    for (size_t at = 0; at < count; ++at) requests[at].offset += kPrefix;
    const IOStatus status = file_->MultiRead(requests, count, options, dbg);
    for (size_t at = 0; at < count; ++at) {
      FSReadRequest& request = requests[at];
      request.offset -= kPrefix;
      if (status.ok() && request.status.ok()) {
        decrypt(*stream_, request.offset, &request.result, request.scratch);
      }
    }
    return status;
  }
  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions& options, IODebugContext* dbg) override {
    return file_->Prefetch(offset + kPrefix, n, options, dbg);
  }
  IOStatus InvalidateCache(size_t offset, size_t length) override {
    return file_->InvalidateCache(length == 0 ? offset : offset + kPrefix, length);
  }
  // Reads at once, by Read.
  IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options,
                     std::function<void(const FSReadRequest&, void*)> done, void* argument, void** handle,
                     IOHandleDeleter* deleter, IODebugContext* dbg) override {
    return FSRandomAccessFile::ReadAsync(request, options, done, argument, handle, deleter, dbg);
  }

 private:
  const std::unique_ptr<FSRandomAccessFile> file_;
  const std::unique_ptr<Stream> stream_;
};

class RandomWrite : public FSRandomRWFileWrapper {
 public:
  RandomWrite(std::unique_ptr<FSRandomRWFile> file, std::unique_ptr<Stream> stream)
      : FSRandomRWFileWrapper(file.get()), file_(std::move(file)), stream_(std::move(stream)) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    Buffer buffer(std::max(data.size(), kAlignment));
    memcpy(buffer.get(), data.data(), data.size());
    stream_->apply(offset, buffer.get(), data.size());
    return file_->Write(offset + kPrefix, Slice(buffer.get(), data.size()), options, dbg);
  }
  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    const IOStatus status = file_->Read(offset + kPrefix, n, options, result, scratch, dbg);
    if (status.ok()) decrypt(*stream_, offset, result, scratch);
    return status;
  }

 private:
  const std::unique_ptr<FSRandomRWFile> file_;
  const std::unique_ptr<Stream> stream_;
};

// RocksDB's log of events, which names keys.
class EventLog : public Logger {
 public:
  explicit EventLog(std::unique_ptr<FSWritableFile> file) : file_(std::move(file)) {}
  ~EventLog() override {
    if (!closed_) {
      closed_ = true;
      CloseImpl().PermitUncheckedError();
    }
  }

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tm when;
    gmtime_r(&now.tv_sec, &when);
    char begin[48];
    const int length = snprintf(begin, sizeof begin, "%04d/%02d/%02d-%02d:%02d:%02d.%06ld ", when.tm_year + 1900,
                                when.tm_mon + 1, when.tm_mday, when.tm_hour, when.tm_min, when.tm_sec,
                                now.tv_nsec / 1000);
    std::string line(begin, std::min<size_t>(std::max(length, 0), sizeof begin - 1));
    va_list copy;
    va_copy(copy, arguments);
    const int text = vsnprintf(nullptr, 0, format, copy);
    va_end(copy);
    if (text > 0) {
      const size_t before = line.size();
      line.resize(before + static_cast<size_t>(text) + 1);
      vsnprintf(&line[before], static_cast<size_t>(text) + 1, format, arguments);
      line.pop_back();
    }
    if (line.back() != '\n') line.push_back('\n');
    const std::lock_guard<std::mutex> alone(mutex_);
    // A line that cannot be written is lost, as in RocksDB's own log.
    file_->Append(line, IOOptions(), nullptr).PermitUncheckedError();
  }
  void Flush() override {
    const std::lock_guard<std::mutex> alone(mutex_);
    file_->Flush(IOOptions(), nullptr).PermitUncheckedError();
  }
  size_t GetLogFileSize() const override {
    const std::lock_guard<std::mutex> alone(mutex_);
    return static_cast<size_t>(file_->GetFileSize(IOOptions(), nullptr));
  }

 protected:
  Status CloseImpl() override {
    const std::lock_guard<std::mutex> alone(mutex_);
    return file_->Close(IOOptions(), nullptr);
  }

 private:
  mutable std::mutex mutex_;
  const std::unique_ptr<FSWritableFile> file_;
};

class EncryptedFiles : public FileSystemWrapper {
 public:
  explicit EncryptedFiles(const std::shared_ptr<FileSystem>& below) : FileSystemWrapper(below) {}

  const char* Name() const override { return "SteelyardAtRest"; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* file, IODebugContext* dbg) override {
    std::unique_ptr<Stream> stream;
    IOStatus status = stream_of(path, &stream, dbg);
    if (!status.ok()) return status;
    std::unique_ptr<FSSequentialFile> below;
    status = target()->NewSequentialFile(path, options, &below, dbg);
    if (!status.ok()) return status;
    if (stream != nullptr) {
      // Reads past the page cache name their offsets.
      if (!below->use_direct_io()) {
        status = below->Skip(kPrefix);
        if (!status.ok()) return status;
      }
      below.reset(new Sequential(std::move(below), std::move(stream)));
    }
    *file = std::move(below);
    return IOStatus::OK();
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file, IODebugContext* dbg) override {
    std::unique_ptr<FSRandomAccessFile> below;
    IOStatus status = target()->NewRandomAccessFile(path, options, &below, dbg);
    if (!status.ok()) return status;
    if (is_covered(path)) {
      const Buffer head(kPrefix);
      Slice read;
      status = below->Read(0, kPrefix, options.io_options, &read, head.get(), dbg);
      std::unique_ptr<Stream> stream;
      if (status.ok()) status = opened(path, read, &stream);
      if (!status.ok()) return status;
      if (stream != nullptr) below.reset(new RandomAccess(std::move(below), std::move(stream)));
    }
    *file = std::move(below);
    return IOStatus::OK();
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    std::unique_ptr<FSWritableFile> below;
    const IOStatus status = target()->NewWritableFile(path, options, &below, dbg);
    if (!status.ok()) return status;
    return begun(path, std::move(below), file, dbg);
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    if (!is_covered(path)) return target()->ReopenWritableFile(path, options, file, dbg);
    uint64_t size = 0;
    IOStatus status = target()->GetFileSize(path, options.io_options, &size, dbg);
    if (status.IsPathNotFound() || status.IsNotFound()) return NewWritableFile(path, options, file, dbg);
    // Another error must not empty a file that is there.
    if (!status.ok()) return status;
    if (size == 0) return NewWritableFile(path, options, file, dbg);
    std::unique_ptr<Stream> stream;
    status = stream_of(path, &stream, dbg);
    if (!status.ok()) return status;
    std::unique_ptr<FSWritableFile> below;
    status = target()->ReopenWritableFile(path, options, &below, dbg);
    if (!status.ok()) return status;
    if (stream != nullptr) {
      size -= std::min<uint64_t>(size, kPrefix);
      below.reset(new Writable(std::move(below), std::move(stream), size));
    }
    *file = std::move(below);
    return IOStatus::OK();
  }

  // The old file's cipher must not be used again for other bytes, so the file begins again.
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    if (!is_covered(path)) return target()->ReuseWritableFile(path, old_path, options, file, dbg);
    const IOStatus status = target()->RenameFile(old_path, path, options.io_options, dbg);
    if (!status.ok()) return status;
    return NewWritableFile(path, options, file, dbg);
  }

  IOStatus NewRandomRWFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSRandomRWFile>* file, IODebugContext* dbg) override {
    std::unique_ptr<Stream> stream;
    IOStatus status = stream_of(path, &stream, dbg);
    if (!status.ok()) return status;
    std::unique_ptr<FSRandomRWFile> below;
    status = target()->NewRandomRWFile(path, options, &below, dbg);
    if (!status.ok()) return status;
    if (stream != nullptr) below.reset(new RandomWrite(std::move(below), std::move(stream)));
    *file = std::move(below);
    return IOStatus::OK();
  }

  IOStatus NewMemoryMappedFileBuffer(const std::string& path,
                                     std::unique_ptr<MemoryMappedFileBuffer>* file) override {
    if (is_covered(path)) return IOStatus::NotSupported("an encrypted file cannot be mapped", path);
    return target()->NewMemoryMappedFileBuffer(path, file);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options,
                    IODebugContext* dbg) override {
    std::unique_ptr<Stream> stream;
    const IOStatus status = stream_of(path, &stream, dbg);
    if (!status.ok()) return status;
    return target()->Truncate(path, stream == nullptr ? size : size + kPrefix, options, dbg);
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* dbg) override {
    const IOStatus status = target()->GetFileSize(path, options, size, dbg);
    if (!status.ok() || *size == 0 || !is_covered(path)) return status;
    std::unique_ptr<Stream> stream;
    const IOStatus found = stream_of(path, &stream, dbg);
    if (!found.ok()) return found;
    if (stream != nullptr) *size -= std::min<uint64_t>(*size, kPrefix);
    return status;
  }

  IOStatus GetChildrenFileAttributes(const std::string& dir, const IOOptions& options,
                                     std::vector<FileAttributes>* files, IODebugContext* dbg) override {
    // By GetFileSize of this object.
    return FileSystem::GetChildrenFileAttributes(dir, options, files, dbg);
  }

  IOStatus NewLogger(const std::string& path, const IOOptions& options, std::shared_ptr<Logger>* log,
                     IODebugContext* dbg) override {
    if (!is_covered(path)) return target()->NewLogger(path, options, log, dbg);
    FileOptions of_file;
    of_file.use_mmap_writes = false;
    std::unique_ptr<FSWritableFile> file;
    const IOStatus status = NewWritableFile(path, of_file, &file, dbg);
    if (status.ok()) log->reset(new EventLog(std::move(file)));
    return status;
  }

 private:
  static bool is_covered(const std::string& path) { return calls->is_covered(path.data(), path.size()) != 0; }

  static IOStatus opened(const std::string& path, const Slice& head, std::unique_ptr<Stream>* stream) {
    const void* raw = nullptr;
    switch (calls->open(path.data(), path.size(), head.data(), head.size(), &raw)) {
      case kPlain:
        return IOStatus::OK();
      case kEncrypted:
        stream->reset(new Stream(raw));
        return IOStatus::OK();
      default:
        return IOStatus::Corruption("the encryption prefix cannot be read", path);
    }
  }

  // The cipher of a file that is there; null if it is plain.
  IOStatus stream_of(const std::string& path, std::unique_ptr<Stream>* stream, IODebugContext* dbg) {
    if (!is_covered(path)) return IOStatus::OK();
    std::unique_ptr<FSRandomAccessFile> file;
    FileOptions options;
    options.use_mmap_reads = false;
    IOStatus status = target()->NewRandomAccessFile(path, options, &file, dbg);
    if (!status.ok()) return status;
    const Buffer head(kPrefix);
    Slice read;
    status = file->Read(0, kPrefix, options.io_options, &read, head.get(), dbg);
    if (!status.ok()) return status;
    return opened(path, read, stream);
  }

  IOStatus begun(const std::string& path, std::unique_ptr<FSWritableFile> below,
                 std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) {
    const Buffer prefix(kPrefix);
    const void* raw = nullptr;
    switch (calls->begin(path.data(), path.size(), prefix.get(), &raw)) {
      case kPlain:
        *file = std::move(below);
        return IOStatus::OK();
      case kEncrypted:
        break;
      default:
        return IOStatus::IOError("a key for the file cannot be made", path);
    }
    std::unique_ptr<Stream> stream(new Stream(raw));
    const Slice bytes(prefix.get(), kPrefix);
    const IOStatus status = below->use_direct_io() ? below->PositionedAppend(bytes, 0, IOOptions(), dbg)
                                                   : below->Append(bytes, IOOptions(), dbg);
    if (!status.ok()) return status;
    file->reset(new Writable(std::move(below), std::move(stream), 0));
    return IOStatus::OK();
  }
};

}  // namespace

extern "C" void steelyard_atrest_install(const steelyard_atrest_calls* given) noexcept {
  calls = given;
  // The method returns the environment's own pointer by reference. The object behind it is not
  // constant, so it may be changed.
  auto& files = const_cast<std::shared_ptr<FileSystem>&>(Env::Default()->GetFileSystem());
  files = std::make_shared<EncryptedFiles>(files);
}
