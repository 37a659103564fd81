package guard

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The line between wrapper and guard is a socket pair of type SEQPACKET: a message is sent whole or not at
// all, and the death of either side is an end of file for the other. Both sides send without ever blocking.
type line struct {
	fd  int
	buf []byte
	oob []byte
}

// What a message says, and its numbers and text.
const (
	// To the guard.
	msgStart  = 'S' // stop, kill, startBy, signal, killAfter, standbyFlag|onLost<<8|leftover; text: tag; descriptors: order, stdin, stdout, holds
	msgHold   = 'H' // descriptor: hold
	msgExtend = 'E' // stop, kill
	msgStop   = 'T'
	msgKill   = 'K'
	msgLost   = 'L'
	msgSignal = 's' // signal
	msgPing   = 'P'
	msgLead   = 'l' // stop, kill, by, signal; descriptors: holds
	msgDown   = 'd' // signal
	msgLetGo  = 'g'

	// To the wrapper.
	msgReady   = 'R' // the guard is up
	msgAck     = 'A' // every message with a sequence number up to this one has been acted on
	msgStarted = 'B' // pid
	msgLate    = 'Z'
	msgFailed  = 'X' // errno
	msgPaused  = 'p' // signal: the first process was stopped by it
	msgToldJob = 'j' // what came of a msgLead, msgDown or msgLetGo
	msgEnded   = 'W' // wait status of the first process, whether stopping had begun
	msgNotice  = 'N' // kind, errno; text: "pid name" entries
	msgDone    = 'D' // wait status, whether stopping had begun; text: "pid name" entries that were let go
)

const (
	numbers    = 6
	headerSize = 1 + 4 + 8*numbers
	// maxText bounds a list of processes; a longer one is cut.
	maxText = 16 << 10
	// maxFiles is below SCM_MAX_FD (253), the most one message can carry.
	maxFiles = 240
	// standbyFlag marks the order of a job that does not lead.
	standbyFlag = 1 << 16
)

type message struct {
	kind  byte
	seq   uint32
	n     [numbers]int64
	text  string
	files []int
}

func newLine(fd int) *line {
	return &line{fd: fd, buf: make([]byte, headerSize+maxText), oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// send is true if the message is on its way. It is false when the other side does not read, or is gone; the
// caller decides whether that matters.
func (l *line) send(m message) bool {
	b := make([]byte, headerSize, headerSize+len(m.text))
	b[0] = m.kind
	binary.NativeEndian.PutUint32(b[1:], m.seq)
	for i, n := range m.n {
		binary.NativeEndian.PutUint64(b[5+8*i:], uint64(n))
	}
	b = append(b, m.text...)
	var oob []byte
	if len(m.files) > 0 {
		oob = unix.UnixRights(m.files...)
	}
	for {
		err := unix.Sendmsg(l.fd, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

var errNothing = errors.New("no message")

// receive returns errNothing if no message waits, and io.EOF once the other side is gone.
func (l *line) receive() (message, error) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(l.fd, l.buf, l.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR, err == unix.ECONNRESET:
			// A reset means that it died with messages unread, and is told before what it had sent.
			continue
		case err == unix.EAGAIN:
			return message{}, errNothing
		case err != nil || n == 0:
			return message{}, io.EOF
		}
		m := message{files: rights(l.oob[:oobn])}
		if n < headerSize {
			closeAll(m.files)
			continue
		}
		m.kind, m.seq = l.buf[0], binary.NativeEndian.Uint32(l.buf[1:])
		for i := range m.n {
			m.n[i] = int64(binary.NativeEndian.Uint64(l.buf[5+8*i:]))
		}
		m.text = string(l.buf[headerSize:n])
		return m, nil
	}
}

// closed tells whether the other side is gone. Messages of its may still wait to be read.
func (l *line) closed() bool {
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	n, err := retry(func() (int, error) { return unix.Poll(fds, 0) })
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

func rights(oob []byte) []int {
	var files []int
	msgs, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range msgs {
		fds, _ := unix.ParseUnixRights(&m)
		files = append(files, fds...)
	}
	return files
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// packOrder writes path, arguments and environment to an anonymous file: they can be larger than a message.
func packOrder(o Order) (*os.File, error) {
	fields := append([]string{o.Path, strconv.Itoa(len(o.Argv))}, o.Argv...)
	fields = append(append(fields, o.Env...), o.Stamp)
	for _, s := range fields {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, syscall.EINVAL
		}
	}
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err := f.WriteString(strings.Join(fields, "\x00")); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func unpackOrder(fd int) (o Order, err error) {
	f := os.NewFile(uintptr(fd), "order")
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return o, err
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		return o, err
	}
	fields := strings.Split(string(b), "\x00")
	if len(fields) < 2 {
		return o, syscall.EINVAL
	}
	argc, err := strconv.Atoi(fields[1])
	if err != nil || argc < 1 || argc > len(fields)-3 {
		return o, syscall.EINVAL
	}
	last := len(fields) - 1
	o.Path, o.Argv, o.Env, o.Stamp = fields[0], fields[2:2+argc], fields[2+argc:last], fields[last]
	return o, nil
}

func packProcesses(pids []int, names []string) string {
	var b strings.Builder
	for i, pid := range pids {
		entry := strconv.Itoa(pid) + " " + names[i] + "\x00"
		if b.Len()+len(entry) > maxText {
			break
		}
		b.WriteString(entry)
	}
	return b.String()
}

func unpackProcesses(text string) (pids []int, names []string) {
	for entry := range strings.SplitSeq(text, "\x00") {
		number, name, ok := strings.Cut(entry, " ")
		pid, err := strconv.Atoi(number)
		if ok && err == nil {
			pids, names = append(pids, pid), append(names, name)
		}
	}
	return pids, names
}
