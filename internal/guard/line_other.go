//go:build unix && !linux

package guard

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A line carries messages over a stream socket: a length, then the message by gob, which keeps strings that
// are no text. Descriptors travel with the length.
type line struct {
	fd int
	mu sync.Mutex // held while sending
}

const maxFiles = 64

type message struct {
	Kind      string
	Order     *order
	Config    *settings
	Deadlines Deadlines
	Signal    int
	PID       int
	Wait      int // a wait status
	Stopped   bool
	Gone      bool

	files []int
}

// order is an Order without descriptors.
type order struct {
	Path      string
	Argv, Env []string
	Stamp     string
	StartBy   time.Duration
}

// settings is what a guard needs of a Config.
type settings struct {
	Signal    syscall.Signal
	KillAfter time.Duration
	OnLost    OnLost
	Leftover  Leftover
}

// send may wait for a guard that does not read; its buffer holds hundreds of messages.
func (l *line) send(m message) error {
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(m); err != nil {
		return err
	}
	body := buf.Bytes()
	l.mu.Lock()
	defer l.mu.Unlock()
	head := binary.NativeEndian.AppendUint32(nil, uint32(len(body)))
	var oob []byte
	if len(m.files) > 0 {
		oob = unix.UnixRights(m.files...)
	}
	if err := unix.Sendmsg(l.fd, head, oob, nil, 0); err != nil {
		return err
	}
	for len(body) > 0 {
		n, err := unix.Write(l.fd, body)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// receive waits for a message; io.EOF means that the other side is gone.
func (l *line) receive() (m message, err error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn := 0, 0
	for {
		n, oobn, _, _, err = unix.Recvmsg(l.fd, head[:], oob, 0)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || n == 0 {
		return m, io.EOF
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, c := range msgs {
		fds, _ := unix.ParseUnixRights(&c)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
		m.files = append(m.files, fds...)
	}
	if err := l.fill(head[n:]); err != nil {
		return m, err
	}
	body := make([]byte, binary.NativeEndian.Uint32(head[:]))
	if err := l.fill(body); err != nil {
		return m, err
	}
	if gob.NewDecoder(bytes.NewReader(body)).Decode(&m) != nil {
		return m, errors.New("bad message")
	}
	return m, nil
}

func (l *line) fill(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(l.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return io.EOF
		}
		b = b[n:]
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
