package cmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

// maxWait bounds durations that have no other bound: longer ones are rather a
// typing error, and sums with them must not overflow.
const maxWait = 366 * 24 * time.Hour

// durationValue is a flag in Go's syntax, with a range. A number without a unit
// is refused: seconds and milliseconds have been mixed up too often.
type durationValue struct {
	d        *time.Duration
	min, max time.Duration
	word     string // a word that stands for wordIs; empty: none
	wordIs   time.Duration
	shown    string // as it was written
}

func (v *durationValue) String() string { return v.shown }
func (v *durationValue) Type() string   { return "duration" }

func (v *durationValue) Set(s string) error {
	if v.word != "" && s == v.word {
		*v.d, v.shown = v.wordIs, s
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, e := strconv.ParseFloat(s, 64); e == nil {
			return fmt.Errorf("a number needs a unit, as in %ss or %sms (%s)", s, s, v.allowed())
		}
		return fmt.Errorf("no duration like 10s, 1m30s or 250ms, or out of all range (%s)", v.allowed())
	}
	if d < v.min || d > v.max {
		return fmt.Errorf("out of range (%s)", v.allowed())
	}
	*v.d, v.shown = d, s
	return nil
}

func (v *durationValue) allowed() string {
	s := fmt.Sprintf("%s to %s", shortDuration(v.min), shortDuration(v.max))
	if v.word != "" {
		s += ", or " + v.word
	}
	return s
}

// shortDuration leaves out the zeros at the end of 24h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// choiceValue is a flag that takes one of a few words.
type choiceValue[T comparable] struct {
	v     *T
	words []string
	are   []T
}

func (v *choiceValue[T]) Type() string { return strings.Join(v.words, "|") }

func (v *choiceValue[T]) String() string {
	for i, a := range v.are {
		if v.v != nil && a == *v.v {
			return v.words[i]
		}
	}
	return ""
}

func (v *choiceValue[T]) Set(s string) error {
	for i, w := range v.words {
		if w == s {
			*v.v = v.are[i]
			return nil
		}
	}
	return fmt.Errorf("one of %s is allowed", strings.Join(v.words, ", "))
}

// exitCodeValue is an exit status, 0 to 255.
type exitCodeValue exitCode

func (v *exitCodeValue) String() string { return strconv.Itoa(int(*v)) }
func (v *exitCodeValue) Type() string   { return "status" }

func (v *exitCodeValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return errors.New("an exit status is a number from 0 to 255")
	}
	*v = exitCodeValue(n)
	return nil
}

// countValue is a number from 0 on.
type countValue int

func (v *countValue) String() string { return strconv.Itoa(int(*v)) }
func (v *countValue) Type() string   { return "number" }

func (v *countValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("a number from 0 on is allowed")
	}
	*v = countValue(n)
	return nil
}

// signalValue is a signal by name, with or without SIG, or by number.
type signalValue syscall.Signal

func (v *signalValue) Type() string { return "signal" }

func (v *signalValue) String() string { return signalName(syscall.Signal(*v)) }

func (v *signalValue) Set(s string) error {
	sig, err := parseSignal(s)
	if err != nil {
		return err
	}
	switch sig {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return errors.New("this signal freezes a job instead of ending it")
	}
	*v = signalValue(sig)
	return nil
}

func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if unix.SignalName(syscall.Signal(n)) == "" {
			return 0, errors.New("there is no such signal")
		}
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	sig := unix.SignalNum(name)
	if sig == 0 {
		return 0, errors.New("there is no such signal; TERM, SIGTERM and 15 are the same")
	}
	return sig, nil
}

func signalName(sig syscall.Signal) string {
	name := unix.SignalName(sig)
	if name == "" {
		return strconv.Itoa(int(sig))
	}
	return strings.TrimPrefix(name, "SIG")
}

// newLeaseDuration is a flag for a part of the lease.
func newLeaseDuration(d *time.Duration) *durationValue {
	*d = lease.Unset
	return &durationValue{d: d, min: lease.MinDuration, max: lease.MaxDuration}
}
