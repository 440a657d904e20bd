//! What the columns of the scores mean. Each line is a paragraph.

use super::WorkloadKind;
use crate::lang::Lang;

pub(super) const fn legend(workload: WorkloadKind, lang: Lang) -> &'static str {
    match lang {
        Lang::En => english(workload),
        Lang::Zh => chinese(workload),
    }
}

const fn english(workload: WorkloadKind) -> &'static str {
    match workload {
        WorkloadKind::Stock => {
            "\
Each request reads the stock and, if it is positive, writes it minus one. Only the lock prevents overlapping requests.
busy: attempts that found the lock held, and were retried. stuck: requests that were never answered. \
refused: late writes rejected by the fencing token. given up: writes skipped because the holder detected the loss of its lock.
fencelock renews the lock of a holder that sleeps. A paused process cannot renew."
        }
        WorkloadKind::Readers => {
            "\
One request of four buys, as in the flash sale. The others read: each reads the stock twice, with some work in between.
torn: reads during which the stock changed. fencelock takes a shared lock for them, so readers work at the same time. \
The other schemes have one kind of lock, so a reader excludes the other readers too.
busy: attempts that found the lock held, and were retried. stuck: requests that were never answered. \
refused: late writes and late reads rejected by the fencing token. \
given up: work that ended because the holder detected the loss of its lock."
        }
        WorkloadKind::Bank => {
            "\
Both requests read the balance and write it minus their payment, so 200 must be left. Only the lock prevents overlapping \
payments.
wrong: accounts whose balance is not 1000 minus the payments. off by: the sum of the differences. \
stuck: payments that were never answered. busy: attempts that found the lock held, and were retried. \
refused: late writes rejected by the fencing token. \
given up: writes skipped because the holder detected the loss of its lock."
        }
        WorkloadKind::Transfers => {
            "\
Each transfer needs the locks of both accounts. It reads both balances and writes both, so 800 and 1200 must be left.
wrong: accounts whose balance is not 1000 plus and minus the transfers. \
deadlocks: each of two transfers had its own account and waited for the other one, until the wait ended. \
Then it released its lock, and was retried.
fencelock-one-by-one locks its own account, reads it, and then locks the other one. \
fencelock locks both with lock_all, in the same order in all clients.
busy: attempts that found the lock held, and were retried. stuck: transfers that were never answered. \
refused: late writes rejected by the fencing token. \
given up: writes skipped because the holder detected the loss of a lock."
        }
        WorkloadKind::Pool => {
            "\
Each request acquires a permit, uses a connection, and returns the permit.
at once: the most users at the same time. too many: those beyond the connections. \
stuck: requests that were never answered, because no permit came back. \
busy: attempts that found no permit, and were retried. \
given up: users that found their permit lost before they had finished.
No fencing token protects a pool: its users may come in any order. fencelock renews the permit of a user that sleeps. \
A paused process cannot renew, so the next user gets its permit."
        }
    }
}

const fn chinese(workload: WorkloadKind) -> &'static str {
    match workload {
        WorkloadKind::Stock => {
            "\
每个请求读取库存，大于 0 就写回库存减一；除了锁，没有别的东西阻止两个请求同时进行。
繁忙：被告知“锁被占用”的次数，之后会再来。卡死：始终没有得到答复的请求。\
被拒写入：被栅栏令牌拦下的迟到写入。主动放弃：写入前发现锁已丢失，于是没有写。
持有者睡着时，fencelock 会自动续期；整个进程停住时，谁也没法续期。"
        }
        WorkloadKind::Readers => {
            "\
四个请求里有一个购买，和秒杀一样；其余的只读：读两次库存，中间处理一会儿业务。
读到变化：两次读到的库存不一样的次数。fencelock 为读者加共享锁，读者可以同时进行；\
其他方案只有一种锁，读者之间也互相排斥。
繁忙：被告知“锁被占用”的次数，之后会再来。卡死：始终没有得到答复的请求。\
被拒写入：被栅栏令牌拦下的迟到写入和迟到读取。主动放弃：发现锁已丢失，于是没有做完。"
        }
        WorkloadKind::Bank => {
            "\
两个请求都读取余额，再写回余额减消费额，所以应剩 200；除了锁，没有别的东西阻止它们同时进行。
错账户数：余额不等于 1000 减去已消费金额的账户。卡死：始终没有得到答复的消费。\
繁忙：被告知“锁被占用”的次数，之后会再来。被拒写入：被栅栏令牌拦下的迟到写入。\
主动放弃：写入前发现锁已丢失，于是没有写。"
        }
        WorkloadKind::Transfers => {
            "\
每笔转账需要两个账户的锁：读取两个余额，再写回两个余额，所以应剩 800 和 1200。
错账户数：余额与转账记录不符的账户。死锁：两笔转账各自锁住自己的账户、等对方的账户，一直等到超时，\
然后放开自己的锁，重新再来。
fencelock-one-by-one 先锁自己的账户，读完再锁对方的账户；fencelock 用 lock_all 一起锁，\
所有客户端的加锁顺序相同。
繁忙：被告知“锁被占用”的次数，之后会再来。卡死：始终没有得到答复的转账。\
被拒写入：被栅栏令牌拦下的迟到写入。主动放弃：写入前发现锁已丢失，于是没有写。"
        }
        WorkloadKind::Pool => {
            "\
每个请求取得一个许可，使用一个连接，然后归还许可。
同时使用：同一时刻最多有多少个使用者。超出：比连接数多出来的使用者。\
卡死：许可一直没有回来，始终没有得到答复的请求。繁忙：没有空闲许可的次数，之后会再来。\
主动放弃：用完之前发现许可已经丢失。
栅栏令牌保护不了连接池，因为使用者之间没有先后。使用者睡着时，fencelock 会自动续期；\
整个进程停住时没法续期，它的许可会给下一个使用者。"
        }
    }
}
