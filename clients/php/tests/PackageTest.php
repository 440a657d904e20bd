<?php

declare(strict_types=1);

namespace Fencelock\Tests;

/** The package as composer installs it, and what its README promises. */
final class PackageTest extends ServerTestCase
{
    public function test_the_examples_of_the_readme_run_in_a_project_that_requires_the_package(): void
    {
        $root = dirname(__DIR__);
        preg_match_all('/^```php\n(<\?php\n.*?)^```$/ms', file_get_contents("$root/README.md"), $blocks);
        $this->assertCount(2, $blocks[1]);
        $this->assertLessThan(11, substr_count(strstr(file_get_contents("$root/README.md"), $blocks[1][0], true) . $blocks[1][0], "\n") + 1);
        mkdir("$this->dir/project");
        file_put_contents("$this->dir/project/composer.json", json_encode([
            'repositories' => [['type' => 'path', 'url' => $root, 'options' => ['symlink' => false]], ['packagist.org' => false]],
            'require' => ['fencelock/fencelock' => '^0.1'],
        ]));
        $composer = $this->start(['composer', 'install', '--quiet', '--no-interaction', '-d', "$this->dir/project"], ['COMPOSER_ALLOW_SUPERUSER' => '1', 'COMPOSER_HOME' => "$this->dir/home"]);
        $this->assertSame(0, $composer->end(), $composer->errors());
        $this->server($this->store());
        foreach ($blocks[1] as $number => $block) {
            file_put_contents("$this->dir/project/$number.php", $block);
            chdir("$this->dir/project");
            foreach ([['FENCELOCK_SOCKET' => "unix:$this->dir/server.sock"], ['FENCELOCK_URL' => "file:$this->dir/locks"]] as $env) {
                $run = $this->start([PHP_BINARY, '-d', 'display_errors=stderr', "$number.php"], $env);
                $number === 0 && $this->assertMatchesRegularExpression('/^I am alone, and my token is \d+$/', $run->line());
                $this->assertSame(0, $run->end(), $run->errors());
                $this->assertSame('', $run->errors());
            }
        }
    }
}
