package zookeeper

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxWord is the longest answer to a four-letter word that is read.
const maxWord = 1 << 20

// says is what a server answers to a four-letter word, by name.
type says struct {
	text   string
	fields map[string]string
	err    error // it was not answered
}

// ask sends one of the words that servers answer without a session, if their
// configuration lets them.
func (d *dialer) ask(ctx context.Context, addr, word string) says {
	ctx, cancel := context.WithTimeout(ctx, 2*firstPatience)
	defer cancel()
	conn, err := d.dial(ctx, addr)
	if err != nil {
		return says{err: err}
	}
	defer func() { _ = conn.Close() }()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	if _, err := io.WriteString(conn, word); err != nil {
		return says{err: err}
	}
	text, err := io.ReadAll(io.LimitReader(conn, maxWord))
	switch {
	case err != nil && len(text) == 0:
		return says{err: err}
	case len(text) == 0, bytes.Contains(text, []byte("is not executed because")):
		return says{err: fmt.Errorf("%s is not in 4lw.commands.whitelist", word)}
	}
	return says{text: string(text), fields: fieldsOf(string(text))}
}

// fieldsOf takes the lines apart: "name=value", "name<tab>value", "name: value".
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if i := strings.IndexAny(sc.Text(), "=\t:"); i > 0 {
			fields[sc.Text()[:i]] = strings.TrimSpace(sc.Text()[i+1:])
		}
	}
	return fields
}

func (s says) number(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s.fields[name], 10, 64)
	return n, err == nil
}

// duration is a number of milliseconds; 0 if it is not told.
func (s says) duration(name string) time.Duration {
	n, _ := s.number(name)
	return millis(n)
}

// from counts the connections of one address in the answer to "cons".
func (s says) from(ip string) (n int64) {
	for sc := bufio.NewScanner(strings.NewReader(s.text)); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if strings.HasPrefix(line, "/"+ip+":") || strings.HasPrefix(line, "/["+ip+"]:") {
			n++
		}
	}
	return n
}
