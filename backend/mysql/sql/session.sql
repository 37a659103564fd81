-- Everything that a server, its init_connect or a proxy may have set otherwise.
-- Two of the variables have another name in MariaDB.
-- A waiter's statement lasts for minutes. Row locks are waited for no longer than an attempt is worth; wait_timeout
-- outlasts the pause between two renewals, whatever the server's default is.
SET NAMES utf8mb4,
    autocommit = 1,
    time_zone = '+00:00',
    sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION',
    /*M! tx_isolation */ /*!80000 transaction_isolation */ = 'READ-COMMITTED',
    innodb_lock_wait_timeout = 1,
    lock_wait_timeout = 1,
    /*M! max_statement_time */ /*!80000 max_execution_time */ = 0,
    wait_timeout = 300
