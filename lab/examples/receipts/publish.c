// Publishes each line of its input as an event, and says what became of it. Needs POSIX alone.
//
//   cc -std=c11 -O2 -o publish publish.c && ./publish HOST PORT SERVICE < events
//
// It prints `stored DIGEST` or `refused DIGEST REASON` for each line, and ends after the last one.
// The numbers are those of docs/reference/receipts.md.

#define _POSIX_C_SOURCE 200809L

#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "sha256.h"

enum { LONGEST_MS = 80000, RECONNECT_MS = 500, KEEPALIVE_S = 30, WINDOW = 200, MOST_BYTES = 1 << 20 };
enum { CONNACK = 2, PUBLISH = 3, SUBACK = 9, DEPTH = 32 };

struct message { // an event without a receipt
    struct message *next;
    unsigned char *payload;
    size_t size;
    char digest[65];
    long due, wait;
};

struct buffer {
    unsigned char bytes[MOST_BYTES + 1];
    size_t size;
};

static struct message *waiting; // in the order of the input (6)
static struct buffer input, unread;
static const char *host, *port;
static char outbox[200], receipts[220], client_id[220];
static int line = -1, count;
static bool is_up, is_end;
static long receipt_ms = 5000, retry_at, heard_at, sent_at;

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// MQTT 3.1.1: the packets that are needed.

static void hang_up(void) {
    if (line >= 0)
        close(line);
    line = -1;
    is_up = false;
    unread.size = 0;
    retry_at = now() + RECONNECT_MS; // 8
}

static void send_bytes(const void *bytes, size_t size) {
    const char *at = bytes;
    while (size && line >= 0) {
        ssize_t taken = send(line, at, size, MSG_NOSIGNAL);
        if (taken < 0) {
            hang_up();
            return;
        }
        at += taken;
        size -= (size_t)taken;
    }
    sent_at = now();
}

static void send_head(unsigned char first, size_t length) {
    unsigned char head[5] = {first}, *at = head + 1;
    for (; length > 127; length >>= 7)
        *at++ = (unsigned char)((length & 127) | 128);
    *at++ = (unsigned char)length;
    send_bytes(head, (size_t)(at - head));
}

static void send_two(unsigned value) {
    unsigned char bytes[2] = {(unsigned char)(value >> 8), (unsigned char)value};
    send_bytes(bytes, 2);
}

static void send_text(const char *text) {
    send_two((unsigned)strlen(text));
    send_bytes(text, strlen(text));
}

static unsigned next_id(void) {
    static unsigned id;
    return id = id % 65535 + 1;
}

static void send_message(struct message *each) {
    send_head(0x32, 2 + strlen(outbox) + 2 + each->size); // QoS 1, not retained (2)
    send_text(outbox);
    send_two(next_id());
    send_bytes(each->payload, each->size);
    each->due = now() + each->wait; // 4
    each->wait = each->wait * 2 < LONGEST_MS ? each->wait * 2 : LONGEST_MS;
}

// Strict enough to tell receipts from anything else (5): each function returns the place behind what it read, or NULL.

static const char *space(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *string(const char *at, char *into, size_t size) {
    size_t used = 0;
    if (*at++ != '"')
        return NULL;
    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && !*++at)
            return NULL;
        if (used + 1 < size)
            into[used++] = *at;
    }
    if (size)
        into[used] = 0;
    return *at ? at + 1 : NULL;
}

static const char *value(const char *at, int depth);

static const char *members(const char *at, int depth, char digest[65], char refused[100]) {
    bool is_object = *at == '{';
    char end = is_object ? '}' : ']';
    at = space(at + 1);
    if (*at == end)
        return at + 1;
    for (;; at = space(at + 1)) {
        char name[16] = "";
        if (is_object) {
            at = string(at, name, sizeof name);
            if (!at || *(at = space(at)) != ':')
                return NULL;
            at = space(at + 1);
        }
        if (digest && !strcmp(name, "digest") && *at == '"')
            at = string(at, digest, 65);
        else if (refused && !strcmp(name, "refused") && *at == '"')
            at = string(at, refused, 100);
        else
            at = value(at, depth - 1);
        if (!at || *(at = space(at)) != ',')
            return at && *at == end ? at + 1 : NULL;
    }
}

static const char *value(const char *at, int depth) {
    if (*at == '"')
        return string(at, NULL, 0);
    if (*at == '{' || *at == '[')
        return depth ? members(at, depth, NULL, NULL) : NULL;
    size_t size = strspn(at, "+-.0123456789Eaeflnrstu"); // a number, true, false or null
    return size ? at + size : NULL;
}

// The receipt protocol.

static void take_receipt(const char *digest, const char *refused) {
    for (struct message **at = &waiting; *at; at = &(*at)->next) {
        struct message *each = *at;
        if (strcmp(each->digest, digest))
            continue;
        if (!strcmp(refused, "spool_full")) { // 10
            each->due = now() + each->wait;
            return;
        }
        printf(*refused ? "refused %s %s\n" : "stored %s\n", digest, refused); // 3, 9
        fflush(stdout);
        *at = each->next;
        free(each->payload);
        free(each);
        count--;
        return;
    }
    // Not one of ours, or reported before (5).
}

static void take_receipts(const char *at) {
    if (*(at = space(at)) != '[' || !value(at, DEPTH))
        return;
    at = space(at + 1);
    while (*at && *at != ']') {
        char digest[65] = "", refused[100] = "";
        at = *at == '{' ? members(at, DEPTH, digest, refused) : value(at, DEPTH);
        take_receipt(digest, refused);
        at = space(at);
        if (*at == ',')
            at = space(at + 1);
    }
}

static void take(unsigned char first, unsigned char *body, size_t size) {
    if (first >> 4 == CONNACK) {
        if (size < 2 || body[1]) {
            fprintf(stderr, "the broker refuses: %d\n", size < 2 ? -1 : body[1]);
            hang_up();
            return;
        }
        send_head(0x82, 2 + 2 + strlen(receipts) + 1); // 1
        send_two(next_id());
        send_text(receipts);
        send_bytes("\1", 1);
    } else if (first >> 4 == SUBACK) {
        if (size < 3 || body[2] >= 128) { // 1
            fprintf(stderr, "the broker refuses %s: %d\n", receipts, size < 3 ? -1 : body[2]);
            hang_up();
            return;
        }
        is_up = true;
        for (struct message *each = waiting; each && line >= 0; each = each->next)
            send_message(each); // 7
    } else if (first >> 4 == PUBLISH && size >= 2) {
        size_t at = 2 + ((size_t)body[0] << 8 | body[1]), qos = first >> 1 & 3;
        if (at + (qos ? 2 : 0) > size)
            return;
        unsigned id = qos ? (unsigned)body[at] << 8 | body[at + 1] : 0;
        char *payload = calloc(1, size + 1);
        memcpy(payload, body + at + (qos ? 2 : 0), size - at - (qos ? 2 : 0));
        take_receipts(payload);
        free(payload);
        if (qos) {
            send_head(0x40, 2);
            send_two(id);
        }
    }
}

static void read_line(void) {
    ssize_t got = recv(line, unread.bytes + unread.size, MOST_BYTES - unread.size, 0);
    if (got <= 0) {
        hang_up();
        return;
    }
    heard_at = now();
    unread.size += (size_t)got;
    for (;;) {
        size_t length = 0, at = 1;
        for (int shift = 0;; shift += 7) {
            if (at >= unread.size)
                return;
            length |= (size_t)(unread.bytes[at] & 127) << shift;
            if (unread.bytes[at++] < 128)
                break;
        }
        if (at + length > unread.size)
            return;
        take(unread.bytes[0], unread.bytes + at, length);
        if (line < 0)
            return;
        unread.size -= at + length;
        memmove(unread.bytes, unread.bytes + at + length, unread.size);
    }
}

static void dial(void) {
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!getaddrinfo(host, port, &wanted, &found))
        for (struct addrinfo *each = found; each && line < 0; each = each->ai_next) {
            line = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
            if (line >= 0 && connect(line, each->ai_addr, each->ai_addrlen))
                hang_up();
        }
    if (found)
        freeaddrinfo(found);
    if (line < 0) {
        hang_up();
        return;
    }
    heard_at = now();
    send_head(0x10, 10 + 2 + strlen(client_id));
    send_text("MQTT");
    send_bytes("\4\2", 2); // 3.1.1, a clean session
    send_two(KEEPALIVE_S);
    send_text(client_id);
}

static void read_input(void) {
    ssize_t got = read(STDIN_FILENO, input.bytes + input.size, MOST_BYTES - input.size);
    if (got <= 0) {
        is_end = true;
        if (!input.size)
            return;
        input.bytes[input.size] = '\n'; // which the last line may lack
        got = 1;
    }
    input.size += (size_t)got;
    for (unsigned char *end; (end = memchr(input.bytes, '\n', input.size));) {
        struct message *each = calloc(1, sizeof *each), **last = &waiting;
        each->size = (size_t)(end - input.bytes);
        each->payload = malloc(each->size + 1);
        memcpy(each->payload, input.bytes, each->size);
        sha256(each->payload, each->size, each->digest);
        each->wait = receipt_ms;
        while (*last)
            last = &(*last)->next;
        *last = each;
        count++;
        input.size -= each->size + 1;
        memmove(input.bytes, end + 1, input.size);
        if (is_up)
            send_message(each);
    }
}

int main(int arguments, char **words) {
    if (arguments != 4) {
        fprintf(stderr, "usage: publish HOST PORT SERVICE < events\n");
        return 2;
    }
    host = words[1], port = words[2];
    snprintf(outbox, sizeof outbox, "eventplane/%s/outbox", words[3]);
    snprintf(receipts, sizeof receipts, "%s/receipts", outbox);
    snprintf(client_id, sizeof client_id, "%.100s-%ld", words[3], (long)getpid());
    if (getenv("RECEIPT_MS"))
        receipt_ms = atol(getenv("RECEIPT_MS"));
    while (!is_end || waiting) {
        if (line < 0 && now() >= retry_at)
            dial();
        long next = line < 0 ? retry_at : sent_at + KEEPALIVE_S * 500;
        for (struct message *each = waiting; is_up && each; each = each->next)
            next = each->due < next ? each->due : next;
        long timeout = next > now() ? next - now() : 0;
        struct pollfd files[2] = {{line, POLLIN, 0}, {!is_end && count < WINDOW ? STDIN_FILENO : -1, POLLIN, 0}};
        poll(files, 2, (int)timeout);
        if (files[1].revents)
            read_input();
        if (line >= 0 && files[0].revents)
            read_line();
        for (struct message *each = waiting; is_up && each; each = each->next)
            if (each->due <= now())
                send_message(each); // 4
        if (is_up && now() >= sent_at + KEEPALIVE_S * 500)
            send_head(0xc0, 0); // a ping
        if (line >= 0 && now() >= heard_at + KEEPALIVE_S * 1500L)
            hang_up(); // not even an answer to a ping
    }
    if (line >= 0)
        send_head(0xe0, 0);
    return 0;
}
