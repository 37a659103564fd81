package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

var (
	// errExpired: the session is over, and its nodes are gone with it.
	errExpired = errors.New("the session has expired")
	errLost    = errors.New("the connection was lost")
	errClosed  = errors.New("it is closed")
	// errRestless: the queue was never the same for two requests.
	errRestless = errors.New("the queue changes all the time")
)

// explained says what to do about what trying again cannot mend.
var explained = []struct {
	err  error
	text string
}{
	{zk.ErrNoAuth, "NoAuth: the ACL of this node, or of the one above, does not let this user"},
	{zk.ErrAuthFailed, "AuthFailed: the server does not accept this user"},
	{zk.ErrInvalidACL, "InvalidACL: the server does not accept the ACL of new nodes"},
	{zk.ErrInvalidPath, "the path is not one of ZooKeeper's"},
	{zk.ErrNoChildrenForEphemerals, "a node above is ephemeral"},
	{zk.ErrBadArguments, "BadArguments"},
}

// sorted tells permanent errors from others; what the server says stays.
func sorted(what string, err error) error {
	if err == nil || lease.IsPermanent(err) || errors.Is(err, errExpired) || errors.Is(err, errLost) {
		return err
	}
	for _, e := range explained {
		if errors.Is(err, e.err) {
			return lease.Permanent(fmt.Errorf("zookeeper: %s: %s (%w)", what, e.text, err))
		}
	}
	return fmt.Errorf("zookeeper: %s: %w", what, err)
}

// isLoss tells that a request got no answer: it may have been carried out.
func isLoss(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) ||
		errors.Is(err, zk.ErrNoServer) || errors.Is(err, errLost) || errors.Is(err, zk.ErrSessionMoved)
}

// isAnswer tells that the server answered, if only with a refusal.
func isAnswer(err error) bool {
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion),
		errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoAuth):
		return true
	}
	return false
}

// unimplemented: a server that has no container nodes. The library has no name
// for the error.
func unimplemented(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "unknown error: -6")
}
