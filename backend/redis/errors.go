package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

// refusal is an error that the server answered. Inside scripts the server adds
// where in the script it happened, which tells people nothing.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// permanentCodes: the account, its rights or the kind of a value must change.
var permanentCodes = []string{"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "NOPROTO", "DENIED"}

// permanentTexts are the same for errors without a code of their own.
var permanentTexts = []string{
	"invalid password", "AUTH", "DB index", "SELECT is not allowed", "cluster support disabled",
	"unknown command", "unknown subcommand", "No such master", "no such user", "can't run this command",
	"can't access at least one of the keys", "can't access one of the",
}

// movedCodes: this server does not serve as it did when we connected, so the
// next attempt has to look for the right one anew.
var movedCodes = []string{"READONLY", "MASTERDOWN", "LOADING", "CLUSTERDOWN"}

// sorted is the one place that tells permanent errors from transient ones. A
// full server (OOM), a script or a load that goes on (BUSY, LOADING), too few
// replicas, a failover (READONLY, CLUSTERDOWN, TRYAGAIN) and too many clients
// all end without anybody changing what was asked for, so they are transient.
func sorted(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || lease.IsPermanent(err) {
		return err
	}
	var reply goredis.Error
	if errors.As(err, &reply) {
		r := &refusal{clean(reply.Error()), err}
		if hasCode(r.text, permanentCodes) || strings.HasPrefix(r.text, "ERR") && containsOne(r.text, permanentTexts) {
			return lease.Permanent(r)
		}
		return r
	}
	var (
		unknown  x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		verify   *tls.CertificateVerificationError
		header   tls.RecordHeaderError
		alert    *net.OpError // of the other side
		verified = errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &verify)
	)
	if verified || errors.As(err, &header) || errors.As(err, &alert) && alert.Op == "remote error" {
		return lease.Permanent(fmt.Errorf("TLS: %w", err))
	}
	return err
}

// clean cuts off what is said of the script.
func clean(text string) string {
	// Before Redis 7 the error of a command stands inside the script's own.
	if rest, ok := strings.CutPrefix(text, "ERR Error running script"); ok {
		if _, inner, ok := strings.Cut(rest, ": -"); ok {
			text = inner
		}
	}
	for _, mark := range []string{" script: ", " @user_script"} {
		if i := strings.Index(text, mark); i > 0 {
			text = text[:i]
		}
	}
	if strings.Contains(text, "unauthenticated") { // more words than strangers may send
		return "NOAUTH Authentication required."
	}
	return strings.TrimRight(text, " ,")
}

func hasCode(text string, codes []string) bool {
	code, _, _ := strings.Cut(text, " ")
	return slices.Contains(codes, strings.TrimPrefix(code, "-"))
}

func containsOne(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}

// deposed tells whether the connection leads to a server that must be left.
func deposed(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) && hasCode(clean(reply.Error()), movedCodes)
}

// refused tells whether the server does not allow what was asked.
func refused(err error) bool {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := clean(reply.Error())
	return hasCode(text, []string{"NOPERM"}) || strings.Contains(text, "unknown command")
}
