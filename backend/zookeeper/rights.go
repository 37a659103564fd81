package zookeeper

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

var permissions = []struct {
	perm int32
	name string
}{
	{zk.PermRead, "read"},
	{zk.PermWrite, "write"},
	{zk.PermCreate, "create"},
	{zk.PermDelete, "delete"},
	{zk.PermAdmin, "admin"},
}

func permissionNames(p int32) string {
	var names []string
	for _, x := range permissions {
		if p&x.perm != 0 {
			names = append(names, x.name)
		}
	}
	return strings.Join(names, ", ")
}

// examineRights looks at the ACLs of the two trees: whether this user may do what a run
// needs, and whether others may do more than they should.
func (b *Backend) examineRights(ctx context.Context, cl *client) ([]lease.Finding, error) {
	var mine, others collected
	for _, tree := range []string{b.set.chroot + queues, b.set.chroot + states} {
		path := tree
		list, err := call(ctx, cl, reads, "look at the ACL of "+path, aclOf(path))
		for errors.Is(err, zk.ErrNoNode) && path != "/" {
			path = path[:max(strings.LastIndexByte(path, '/'), 1)]
			list, err = call(ctx, cl, reads, "look at the ACL of "+path, aclOf(path))
		}
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			mine.say("%s: the ACL does not even let this user look", path)
			mine.advise("give the right user and password, or have %s given to this user (setAcl)", path)
			others.say("%s: not known", path)
			continue
		case err != nil:
			return nil, err
		}
		b.judge(list, path, path == tree, &mine, &others)
	}
	return []lease.Finding{mine.finding("rights"), others.finding("rights of others")}, nil
}

func aclOf(path string) func(*zk.Conn) ([]zk.ACL, error) {
	return func(c *zk.Conn) ([]zk.ACL, error) {
		list, _, err := c.GetACL(path)
		return list, err
	}
}

// judge says what one ACL comes to; ours: the node is the root of one of our trees, and
// not one above it in which the tree is to be made.
func (b *Backend) judge(list []zk.ACL, path string, ours bool, mine, others *collected) {
	need := int32(zk.PermCreate)
	if ours {
		need = zk.PermRead | zk.PermCreate | zk.PermDelete
	}
	have, anyone, judged := b.permissions(list)
	switch missing := need &^ have; {
	case missing == 0:
		mine.say("%s: %s", path, permissionNames(have))
	case !judged:
		mine.say("%s: the ACL names others than users with passwords, which cannot be judged", path)
	default:
		mine.say("%s: this user may not %s", path, permissionNames(missing))
		mine.advise("setAcl %s: give this user %s", path, permissionNames(need))
	}
	switch more := anyone &^ zk.PermRead; {
	case !ours:
		others.say("%s is not there yet: it is made by the first run", strings.TrimSuffix(path, "/")+"/…")
	case b.set.user == "":
		others.say("%s: no user is given, so everybody may %s", path, permissionNames(anyone))
	case anyone == 0:
		others.say("%s: none but whom the ACL names", path)
	case more == 0:
		others.say("%s: everybody may read", path)
	case b.set.open:
		others.say("%s: everybody may %s, as acl=open asks for", path, permissionNames(anyone))
	default:
		others.say("%s: everybody may %s, although there is a user", path, permissionNames(anyone))
		others.advise("setAcl %s auth::cdrwa as this user: whoever reaches the servers can take a mutex away, or end a hold", path)
	}
}

// permissions are what this user and what everybody may do. judged: nobody is named
// who could be this one in another way.
func (b *Backend) permissions(list []zk.ACL) (have, anyone int32, judged bool) {
	judged = true
	digest := ""
	if b.set.user != "" {
		digest = zk.DigestACL(zk.PermAll, b.set.user, b.set.password)[0].ID
	}
	for _, a := range list {
		switch {
		case a.Scheme == "world":
			anyone |= a.Perms
			have |= a.Perms
		case a.Scheme != "digest":
			judged = false
		case digest == "":
		case a.ID == digest, a.ID == b.set.user+":x" && a.Perms&zk.PermAdmin == 0:
			// The server does not show the digest to who may not change the ACL.
			have |= a.Perms
		}
	}
	return have, anyone, judged
}
