/*
 * Messages for people, put together without a library. One that is too long is
 * cut off.
 */
/* The message that is being put together. */
static char message[4096];
static unsigned length;

static void say(const char *s)
{
	for (; s && *s && length < sizeof message - 1; s++)
		message[length++] = *s;
}

static void say_number(long n)
{
	char digits[20];
	int i = 0;

	do
		digits[i++] = '0' + n % 10;
	while ((n /= 10) && i < (int)sizeof digits);
	while (i)
		say((char[]){ digits[--i], 0 });
}
