package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

const (
	lockName   = "lock"
	recordName = "record"
	revokeName = "revoke"
	newRecord  = ".record.new"

	// maxRead bounds what is read of a file that anybody may have written.
	maxRead = 64 << 10
	maxID   = 512
	maxText = 4096
	// maxFence: fences are exact in every JSON reader.
	maxFence = 1<<53 - 1
	// maxPending bounds the owners that died one after the other, each before it
	// had ended what the one before it left.
	maxPending = 16
)

// record says who owns a mutex or did last. It decides nothing but the next
// fence and whom to look for before a job is started.
type record struct {
	Mutex    string     `json:"mutex"`
	Owner    string     `json:"owner"`
	Info     lease.Info `json:"info"`
	Fence    uint64     `json:"fence"`
	Acquired time.Time  `json:"acquired"`
	TTL      int64      `json:"ttl_ms,omitempty"`
	Lease    int64      `json:"lease_ms,omitempty"`
	Boot     string     `json:"boot,omitempty"`
	// Hold is for how long from the acquisition on nobody else may own it, and
	// Reading the time since the boot at the acquisition.
	Hold    int64 `json:"hold_ms,omitempty"`
	Reading int64 `json:"boot_ms,omitempty"`
	// Lock is the inode of the lock file under which this was written.
	Lock uint64 `json:"lock"`
	// Pending are earlier owners that never released and whose leftovers nobody
	// has ended for certain, the latest first.
	Pending []string `json:"pending,omitempty"`
	// Sum is a checksum of the rest but Ended.
	Sum string `json:"sum"`
	// Ended is when the owner released it, in the form of endedForm; blanks of
	// the same length while it has not.
	Ended string `json:"ended"`

	genuine bool // the checksum was right
}

// The record is written over in place where that is possible, since making,
// renaming and removing files is what a hand-over would take longest with: ten
// to a hundred times as long on a journalling disk. A reader that comes at that
// instant sees by the checksum that it got a mixture. The release is only the
// few bytes of Ended, which are a time or none.

const endedForm = "2006-01-02T15:04:05.000Z"

var notEnded = strings.Repeat(" ", len(endedForm))

func (r *record) released() bool {
	_, err := time.Parse(endedForm, r.Ended)
	return err == nil
}

// cooldown is how long nobody may own the mutex yet, though its lock may be free.
// It never exceeds what was asked for, whatever the clocks did, and only a record
// that somebody wrote as a whole counts.
func (r *record) cooldown() time.Duration {
	if r == nil || r.Hold <= 0 || !r.genuine {
		return 0
	}
	since := time.Since(r.Acquired)
	if r.Boot == bootID() {
		since = lease.BootClock{}.Now() - time.Duration(r.Reading)*time.Millisecond
	}
	hold := time.Duration(r.Hold) * time.Millisecond
	return min(hold-since, hold)
}

// readRecord returns nil and why if there is none that can be believed. An
// error says that it cannot be known.
func (p *place) readRecord() (*record, string, error) {
	r, detail, file, err := p.openRecord(unix.O_RDONLY)
	if file != nil {
		_ = file.Close()
	}
	return r, detail, err
}

// openRecord also returns the open file, if there is one.
func (p *place) openRecord(flags int) (r *record, detail string, file *os.File, err error) {
	path := p.path(recordName)
	fd, st, err := p.openFile(p.dir, recordName, path, flags)
	if errors.Is(err, unix.ENOENT) {
		return nil, "", nil, nil
	}
	if err != nil {
		return nil, "", nil, sorted(path, err)
	}
	file = os.NewFile(uintptr(fd), path)
	b, err := readStable(fd)
	if err != nil {
		_ = file.Close()
		return nil, "", nil, sorted(path, err)
	}
	r, detail = parseRecord(b, p.mutex)
	if flags != unix.O_RDONLY && st.Nlink != 1 {
		// Under another name it may be something that is not ours.
		_ = file.Close()
		file = nil
	}
	return r, detail, file, nil
}

// readStable reads again if the checksum is wrong. What stays as it is was not
// caught in the middle of a write: it is just what somebody put there.
func readStable(fd int) (b []byte, err error) {
	for same, tries := 0, 0; same < 3 && tries < 50; tries++ {
		before := b
		if b, err = readFD(fd, maxRead); err != nil || sumOf(b) {
			break
		}
		if bytes.Equal(b, before) {
			same++
		}
		runtime.Gosched()
	}
	return b, err
}

func parseRecord(b []byte, mutex string) (*record, string) {
	r := &record{genuine: sumOf(b)}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, "the record is not readable"
	}
	switch {
	case r.Mutex != mutex:
		return nil, "the record is of another mutex"
	case r.Owner == "" || len(r.Owner) > maxID || r.Fence == 0 || r.Fence >= maxFence:
		return nil, "the record makes no sense"
	}
	r.Info = bounded(r.Info)
	r.Pending = r.Pending[:min(len(r.Pending), maxPending)]
	r.Pending = slices.DeleteFunc(r.Pending, func(id string) bool { return id == "" || len(id) > maxID })
	return r, ""
}

// read returns a small file's contents. Its error is sorted, but for ENOENT.
func (p *place) read(at int, name string, limit int) ([]byte, error) {
	path := p.path(name)
	fd, _, err := p.openFile(at, name, path, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	if err != nil {
		return nil, sorted(path, err)
	}
	defer unix.Close(fd)
	b, err := readFD(fd, limit)
	return b, sorted(path, err)
}

func readFD(fd, limit int) ([]byte, error) {
	b := make([]byte, 0, 1024)
	for len(b) < limit {
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := unix.Pread(fd, b[len(b):min(cap(b), limit)], int64(len(b)))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b, nil
}

// bounded cuts what others wrote about themselves to a sane length.
func bounded(i lease.Info) lease.Info {
	for _, s := range []*string{&i.Host, &i.User, &i.Program, &i.Note} {
		*s = (*s)[:min(len(*s), maxText)]
	}
	return i
}

const (
	noSum      = "00000000"
	recordUnit = 512
)

// encode makes a line that is padded with blanks to at least the size.
func (r *record) encode(size int64) []byte {
	r.Sum, r.Ended = noSum, notEnded
	b, err := json.Marshal(r)
	if err != nil { // a time with a year beyond 9999 in the contender's info
		r.Info.Since = time.Time{}
		b, _ = json.Marshal(r)
	}
	r.Sum = fmt.Sprintf("%08x", crc32.ChecksumIEEE(b))
	copy(b[field(b, "sum"):], r.Sum)
	for int64(len(b)+1) < size || (len(b)+1)%recordUnit != 0 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// field is where the value of a string field begins; only for the last ones.
func field(b []byte, name string) int {
	mark := `"` + name + `":"`
	return bytes.LastIndex(b, []byte(mark)) + len(mark)
}

// sumOf tells whether the checksum is right.
func sumOf(b []byte) bool {
	b = bytes.Clone(bytes.TrimRight(b, " \n"))
	sum, ended := field(b, "sum"), field(b, "ended")
	if sum+len(noSum) > len(b) || ended+len(notEnded) > len(b) {
		return false
	}
	have := string(b[sum : sum+len(noSum)])
	copy(b[sum:], noSum)
	copy(b[ended:], notEnded)
	return have == fmt.Sprintf("%08x", crc32.ChecksumIEEE(b))
}

// writeRecord writes over the old record if that is open, and else replaces it.
// It returns the file, opened. Only who holds the lock writes, so one fixed name
// for a new file is enough, and what a crash left there is removed. Nothing is
// synced to disk: a record matters only as long as the machine is up.
func (p *place) writeRecord(r *record, old *os.File) (*os.File, error) {
	if old != nil {
		if info, err := old.Stat(); err == nil && info.Size() <= maxRead {
			b := r.encode(info.Size())
			if int64(len(b)) == info.Size() {
				if _, err := old.WriteAt(b, 0); err == nil {
					return old, nil
				}
			}
		}
		_ = old.Close()
	}
	fd, err := p.create(p.dir, newRecord)
	if errors.Is(err, unix.EEXIST) {
		_ = unix.Unlinkat(p.dir, newRecord, 0)
		fd, err = p.create(p.dir, newRecord)
	}
	if err != nil {
		return nil, err
	}
	if err = write(fd, r.encode(0)); err == nil {
		err = unix.Renameat(p.dir, newRecord, p.dir, recordName)
	}
	if err != nil {
		_ = unix.Close(fd)
		_ = unix.Unlinkat(p.dir, newRecord, 0)
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.path(recordName)), nil
}

// end writes the time of the release into the open record.
func (r *record) end(file *os.File) error {
	at := field(r.encode(0), "ended")
	_, err := file.WriteAt([]byte(time.Now().UTC().Format(endedForm)), int64(at))
	return err
}

// nextFence rises even if the record was lost: by what the contender saw, and
// by the time of day.
func nextFence(last *record, seen uint64) (uint64, error) {
	f := max(uint64(max(time.Now().UnixMicro(), 0)), 1)
	if last != nil {
		f = max(f, last.Fence+1)
	}
	if seen < maxFence {
		f = max(f, seen+1)
	}
	if f > maxFence {
		return 0, errors.New("the clock is beyond the year 2255: no fence is left")
	}
	return f, nil
}

// unreleased are the owners whose leftovers may still be at work, when the lock
// was found free under this record. Nothing outlives the boot it was in.
func (r *record) unreleased(by string) []string {
	if r == nil || r.Boot != bootID() {
		return nil
	}
	ids := slices.Clone(r.Pending)
	if !r.released() {
		ids = slices.Insert(ids, 0, r.Owner)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == by })
	return ids[:min(len(ids), maxPending)]
}

// readRevoked tells whether this owner was told to stop.
func (p *place) readRevoked(owner string) (bool, error) {
	b, err := p.read(p.dir, revokeName, maxID)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && string(bytes.TrimSpace(b)) == owner, err
}

// writeRevoked leaves the mark for the owner. It names him, so it means nothing
// to the next one.
func (p *place) writeRevoked(owner string) error {
	return p.replace(revokeName, []byte(owner+"\n"), false)
}
