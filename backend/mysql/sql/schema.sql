CREATE TABLE IF NOT EXISTS simba_mutex (
  mutex         varchar(128)    NOT NULL PRIMARY KEY,
  acquired_at   bigint unsigned NOT NULL,
  ttl_at        bigint unsigned NOT NULL,
  transition_at bigint unsigned NOT NULL,
  owner_id      varchar(128)    NOT NULL,
  version       int unsigned    NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS simba_lease (
  mutex           varchar(128)      NOT NULL PRIMARY KEY,
  birth           varchar(32)       NOT NULL COMMENT 'tells this row from one made anew',
  rev             bigint unsigned   NOT NULL DEFAULT 0 COMMENT 'rises with every change but renewals',
  fence           bigint unsigned   NOT NULL DEFAULT 0 COMMENT 'highest fencing token given out',
  owner_id        varchar(128)      NOT NULL DEFAULT '' COMMENT 'present or last owner that is not a JVM',
  info            text              NOT NULL COMMENT 'JSON, what it tells of itself',
  acquired_at     bigint unsigned   NOT NULL DEFAULT 0 COMMENT 'times are ms since 1970, UTC',
  end_at          bigint unsigned   NOT NULL DEFAULT 0 COMMENT 'of its lease, that is transition_at unless a hold lasts longer',
  lease_ms        bigint unsigned   NOT NULL DEFAULT 0,
  hold_until      bigint unsigned   NOT NULL DEFAULT 0 COMMENT 'nobody else may own it before',
  released        tinyint unsigned  NOT NULL DEFAULT 0,
  revoked         tinyint unsigned  NOT NULL DEFAULT 0,
  promise_id      varchar(128)      NOT NULL DEFAULT '' COMMENT 'waiter that was woken',
  promise_until   bigint unsigned   NOT NULL DEFAULT 0,
  promise_version int unsigned      NOT NULL DEFAULT 0 COMMENT 'void if simba_mutex.version is another',
  embargo_id      varchar(128)      NOT NULL DEFAULT '' COMMENT 'owner whose record was lost',
  embargo_fence   bigint unsigned   NOT NULL DEFAULT 0,
  embargo_until   bigint unsigned   NOT NULL DEFAULT 0,
  embargo_ms      bigint unsigned   NOT NULL DEFAULT 0,
  waiters         mediumtext        NOT NULL COMMENT 'a line each: id, tab, w(oken) or p(olls), tab, JSON',
  spent           mediumtext        NOT NULL COMMENT 'ids that may own nothing any more, a line each',
  spent_until     bigint unsigned   NOT NULL DEFAULT 0 COMMENT 'when the last of them may be forgotten',
  checkpoint      varchar(512)      CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'what owners leave to those after them'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
